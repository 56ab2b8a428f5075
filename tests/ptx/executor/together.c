/* together.c - instructions that lanes of a warp do together. */
#include <stdio.h>

#include "team.h"

void ptx_fence(struct ptx_warp *warp) {
    (void)warp;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void ptx_warp_sync(struct ptx_warp *warp, uint32_t lanes) {
    if (lanes == warp->live) ptx_fiber_of(warp)->syncs++;
}

uint32_t ptx_uniform(struct ptx_warp *warp, const v_u32 *x, uint32_t lanes, uint32_t site) {
    const uint32_t value = (*x)[__builtin_ctz(lanes)];
    const uint32_t others = lanes & ~LANES(*x == value);
    if (others) ptx_fail(warp, others, "an operand that all lanes must have alike differs", site);
    return value;
}

/* PTX ISA, shfl.sync: C is the segments' mask (bits 8 to 12) and the last lane to read from (0 to 4). */
static void shuffle(struct ptx_warp *warp, v_u32 *x, const v_u32 *bs, const v_u32 *cs, uint32_t lanes, uint32_t *in,
                    uint32_t site, int how) {
    const v_u32 segment = *cs >> 8 & 31u, clamp = *cs & 31u, b = *bs & 31u;
    const v_u32 most = (ptx_lanes & segment) | (clamp & ~segment), least = ptx_lanes & segment;
    v_u32 from;
    uint32_t good;
    if (how == 0) { /* up */
        from = ptx_lanes - b;
        good = LANES((v_s32)from >= (v_s32)most);
    } else {
        from = how == 1 ? ptx_lanes + b : how == 2 ? ptx_lanes ^ b : least | (b & ~segment);
        good = LANES(from <= most);
    }
    from = SELECT32(good, from, ptx_lanes) & 31u;
    uint32_t value[32], source[32], wanted = 0;
    memcpy(value, x, sizeof value);
    memcpy(source, &from, sizeof source);
    for (int lane = 0; lane < 32; lane++) wanted |= (lanes >> lane & 1) << source[lane];
    for (uint32_t left = wanted & ~lanes ? lanes : 0; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left);
        if (!(lanes >> source[lane] & 1))
            ptx_report(ptx_team_of(warp), warp, lane, site, "reads from lane %u, which is not there", source[lane]);
    }
    uint32_t result[32];
    for (int lane = 0; lane < 32; lane++) result[lane] = value[source[lane]];
    memcpy(x, result, sizeof result);
    *in = good;
}
#define SHUFFLE(name, how)                                                                                             \
    void ptx_shuffle_##name(struct ptx_warp *warp, v_u32 *x, const v_u32 *b, const v_u32 *c, uint32_t lanes,           \
                            uint32_t *in, uint32_t site) {                                                             \
        shuffle(warp, x, b, c, lanes, in, site, how);                                                                  \
    }
SHUFFLE(up, 0)
SHUFFLE(down, 1)
SHUFFLE(bfly, 2)
SHUFFLE(idx, 3)

typedef float eight __attribute__((ext_vector_type(8)));
typedef uint16_t tile[8][8];

static float number(uint16_t bf16) { return ptx_float((uint32_t)bf16 << 16); }

/* PTX ISA, mma.m16n8k16 of bf16. A register of all lanes is a tile of 8 rows of 8: of A (registers 0 and 2: rows 0 to
 * 7, 1 and 3: 8 to 15; 0 and 1: columns 0 to 7), of B's columns, and, with the register behind it, of C's rows. Terms
 * are added in ascending order, each sum rounded: PTX leaves that open. */
void ptx_mma(struct ptx_warp *warp, const v_u32 a[4], const v_u32 b[2], v_f32 c[4]) {
    (void)warp;
    tile x[4], y[2];
    _Alignas(v_u32) eight z[16]; /* which registers are written to */
    eight rows[16];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    ptx_join_32(&z[0], (v_u32)c[0], (v_u32)c[1]);
    ptx_join_32(&z[8], (v_u32)c[2], (v_u32)c[3]);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++) rows[k][j] = number(y[k / 8][j][k % 8]);
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) z[i] += number(x[i / 8 + k / 8 * 2][i % 8][k % 8]) * rows[k];
    for (int i = 0; i < 2; i++) {
        c[2 * i] = PART2_32(&z[8 * i], 0, v_f32);
        c[2 * i + 1] = PART2_32(&z[8 * i], 1, v_f32);
    }
}

/* Lane 8 i + r has the address of row r of matrix i. Of each matrix, or of the transposed one, a lane gets two
 * neighbours: all lanes' are the rows one behind another. */
void ptx_ldmatrix(struct ptx_warp *warp, const v_u64 *addresses, int transposed, v_u32 x[4], uint32_t site) {
    tile rows[4], turned;
    ptx_load_shared_16(warp, addresses, ~0u, rows, site);
    if (!transposed) memcpy(x, rows, sizeof rows);
    for (int i = 0; i < 4 && transposed; i++) {
        for (int r = 0; r < 8; r++)
            for (int k = 0; k < 8; k++) turned[k][r] = rows[i][r][k];
        memcpy(&x[i], turned, sizeof turned);
    }
}
