/* warps_internal.h - the warps of a team, and products of small tiles by their tensor cores.
 *
 * A team has WARPS warps of 32 lanes. A tile of sums [16, 8] of floats, or two tiles of operands of bf16, are in the
 * registers of a warp's lanes, in the layout of NVIDIA's instructions (PTX ISA: mma.m16n8k16 and ldmatrix). In each 8 x
 * 8 elements, lane l has row l / 4, and columns 2 (l % 4) and the next one.
 *
 * A thread on a GPU is one lane of one warp. Tests on a CPU define SL_WARPS_EMULATED: there one thread is all lanes of
 * all warps, and replaces the instructions by loops. So a lane's values are arrays [LANES_HERE], and kernels work for
 * both: loops over warps and lanes have one step on a GPU. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_WARPS_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_WARPS_INTERNAL_H

#include <string.h>

#include "layers/kernels/loops/vectors_internal.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/device/offload.h"

/* A team has as many threads as a region (spmd/device/cuda/regions.c). */
enum { WARPS = 4, WARP = 32, TEAM = WARPS * WARP };

/* BUSY: teams that keep a device busy; few in tests, so that small sizes run the code for many teams. */
#if defined(SL_WARPS_EMULATED)
enum { WARPS_HERE = WARPS, LANES_HERE = WARP, THREADS_HERE = TEAM, BUSY = 4 };
#define SL_TEAM()
#else
enum { WARPS_HERE = 1, LANES_HERE = 1, THREADS_HERE = 1, BUSY = SL_TEAMS };
#define SL_TEAM() SL_PRAGMA(omp parallel)
#endif

/* Loop over all warps, or lanes, of this thread. */
#define EACH_WARP(w) for (int w = 0; w < WARPS_HERE; w++)
#define EACH_LANE(l) for (int l = 0; l < LANES_HERE; l++)

struct sums { /* [16, 8]: two columns of row l / 4, and of the row 8 below it */
    float x[LANES_HERE][4];
};
/* The left operand of a product [16, 16], with two neighbours of a row per register; or two tiles [8, 16] of the right
 * operand, two registers each, whose rows are columns of the product. */
struct operand {
    uint32_t x[LANES_HERE][4];
};
/* Layout of an operand in memory: left operand by rows; right operand by rows; right operand by columns [16, 2 * 8]. */
enum operand_rows { LEFT, RIGHT, TURNED };

/* ---- this thread ---- */

#if defined(SL_WARPS_EMULATED)
static inline int thread_of(int here) { return here; }
static inline int warp_of(int here) { return here; }
static inline int lane_of(int here) { return here; }
static inline void wait_for_team(void) {}
#elif defined(__NVPTX__)
static inline int thread_of(int here) { return here + __nvvm_read_ptx_sreg_tid_x(); }
static inline int warp_of(int here) { return thread_of(here) / WARP; }
static inline int lane_of(int here) { return thread_of(here) % WARP; }
SL_INLINE void wait_for_team(void) { SL_PRAGMA(omp barrier) }
#else /* the host's pass of a build for GPUs: never executed */
static inline int thread_of(int here) { return here; }
static inline int warp_of(int here) { return here; }
static inline int lane_of(int here) { return here; }
SL_INLINE void wait_for_team(void) { SL_PRAGMA(omp barrier) }
#endif

/* ---- numbers ---- */

#if defined(__NVPTX__)
SL_INLINE uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
/* Two digits less precise than a float: for results that are rounded to bf16. */
SL_INLINE float rough_exp2(float x) {
    float y;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Returns row ROW of X, with rows APART bytes apart. */
SL_INLINE const char *line(const char *x, uint32_t row, uint32_t apart) {
    const char *at;
    __asm__("mad.wide.u32 %0, %1, %2, %3;" : "=l"(at) : "r"(row), "r"(apart), "l"(x));
    return at;
}
/* Returns X, but prevents compilers from computing values of it before a loop: such values would take registers
 * throughout. */
SL_INLINE uint32_t afresh(uint32_t x) {
    __asm__ volatile("" : "+r"(x));
    return x;
}
#else
SL_INLINE uint32_t pack_bf16(float low, float high) {
    return sl_bf16_of_float(low) | (uint32_t)sl_bf16_of_float(high) << 16;
}
SL_INLINE float rough_exp2(float x) { return sl_exp2(x); }
SL_INLINE const char *line(const char *x, uint32_t row, uint32_t apart) { return x + (size_t)row * apart; }
SL_INLINE uint32_t afresh(uint32_t x) { return x; }
#endif

/* ---- tiles ---- */

/* The row, and the first of 8 columns, of the address that lane L passes when an operand is read. */
SL_INLINE size_t row_of_lane(int l, enum operand_rows how) {
    return (size_t)(how == RIGHT ? l % 8 + l / 16 * 8 : l % 16);
}
SL_INLINE size_t column_of_lane(int l, enum operand_rows how) {
    return (size_t)(how == RIGHT ? l / 8 % 2 * 8 : l / 16 * 8);
}

#if defined(__NVPTX__)
/* Reads [16, 16] from a team's memory, rows PITCH apart, at element FIRST of X, aligned to 16 bytes. Addresses there
 * have 32 bits. FIRST is added last: a constant FIRST becomes part of the instruction, and takes no register. */
SL_INLINE void read_operand(const uint16_t *x, size_t first, size_t pitch, const enum operand_rows how,
                            struct operand *to) {
    const int l = lane_of(0);
    const uint32_t lane = (uint32_t)(2 * (row_of_lane(l, how) * pitch + column_of_lane(l, how)));
    const uint32_t own = (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)(const void *)x + lane;
    const uint32_t at = own + (uint32_t)(2 * first);
    uint32_t *r = to->x[0];
    if (how == TURNED)
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                         : "r"(at)
                         : "memory");
    else
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                         : "r"(at)
                         : "memory");
}

/* sums = START + left [16, 16] right^T, for tile HALF of the right operand. */
SL_INLINE void product_from(const struct sums *start, const struct operand *left, const struct operand *right,
                            const int half, struct sums *sums) {
    const uint32_t *a = left->x[0], *b = right->x[0] + 2 * half;
    const float *from = start->x[0];
    float *c = sums->x[0];
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(from[0]), "f"(from[1]),
              "f"(from[2]), "f"(from[3]));
}

/* Maximum, or sum, over the four lanes with the same rows. */
SL_INLINE void largest_of_row(float x[LANES_HERE]) {
    for (int step = 1; step < 4; step *= 2) {
        const float other = __nvvm_shfl_sync_bfly_f32(0xffffffffu, x[0], step, 0x1f);
        x[0] = other > x[0] ? other : x[0];
    }
}
SL_INLINE void sum_of_row(float x[LANES_HERE]) {
    for (int step = 1; step < 4; step *= 2) x[0] += __nvvm_shfl_sync_bfly_f32(0xffffffffu, x[0], step, 0x1f);
}
SL_INLINE bool any_of_warp(const bool x[LANES_HERE]) { return __nvvm_vote_any_sync(0xffffffffu, x[0]); }

/* Copies BYTES, 4 or 16 with the same alignment, from a device's memory to a team's, or writes zeros unless THERE,
 * asynchronously. wait_for_copies waits for all copies of the thread. */
SL_INLINE void copy_ahead(const void *from, const int bytes, bool there, void *to) {
    const uint32_t at = (uint32_t)(uintptr_t)(__attribute__((address_space(3))) void *)to;
    const __attribute__((address_space(1))) void *x = (const __attribute__((address_space(1))) void *)from;
    if (bytes == 4)
        __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(x), "r"(there ? 4 : 0)
                         : "memory");
    else if (__builtin_constant_p(there) && there)
        __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(x) : "memory");
    else
        __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(x), "r"(there ? 16 : 0)
                         : "memory");
}
SL_INLINE void wait_for_copies(void) { __asm__ volatile("cp.async.wait_all;" ::: "memory"); }
#elif defined(SL_WARPS_EMULATED) /* not inlined: kernels call them in fully unrolled loops */
static inline void read_operand(const uint16_t *x, size_t first, size_t pitch, const enum operand_rows how,
                                struct operand *to) {
    EACH_LANE(l) {
        for (int i = 0; i < 4; i++) { /* 8 x 8 elements, with row addresses from lanes 8 i to 8 i + 7 */
            uint16_t pair[2];
            for (int e = 0; e < 2; e++) {
                const int row = how == TURNED ? l % 4 * 2 + e : l / 4, column = how == TURNED ? l / 4 : l % 4 * 2 + e;
                const int lane = 8 * i + row;
                pair[e] = x[first + row_of_lane(lane, how) * pitch + column_of_lane(lane, how) + (size_t)column];
            }
            to->x[l][i] = pair[0] | (uint32_t)pair[1] << 16;
        }
    }
}

/* Unpacks the lanes' registers FIRST and, for columns from 8 on, FIRST + STEP into X [8, 16]. */
static inline void unpack(const struct operand *from, int first, int step, float x[8][16]) {
    EACH_LANE(l) {
        for (int i = 0; i < 4; i++) {
            const uint32_t both = from->x[l][first + i / 2 * step];
            x[l / 4][l % 4 * 2 + i % 2 + i / 2 * 8] = sl_float_of_bf16((uint16_t)(both >> i % 2 * 16));
        }
    }
}

static inline void product_from(const struct sums *start, const struct operand *left, const struct operand *right,
                                const int half, struct sums *sums) {
    float rows[16][16], columns[8][16];
    unpack(left, 0, 2, rows);
    unpack(left, 1, 2, rows + 8);
    unpack(right, 2 * half, 1, columns);
    EACH_LANE(l) {
        for (int i = 0; i < 4; i++) {
            const float *row = rows[l / 4 + i / 2 * 8], *column = columns[l % 4 * 2 + i % 2];
            float sum = start->x[l][i];
            for (int k = 0; k < 16; k++) sum += row[k] * column[k];
            sums->x[l][i] = sum;
        }
    }
}

static inline void largest_of_row(float x[LANES_HERE]) {
    for (int l = 0; l < LANES_HERE; l += 4) {
        for (int i = 1; i < 4; i++) x[l] = x[l + i] > x[l] ? x[l + i] : x[l];
        for (int i = 1; i < 4; i++) x[l + i] = x[l];
    }
}
static inline void sum_of_row(float x[LANES_HERE]) {
    for (int l = 0; l < LANES_HERE; l += 4) {
        x[l] = (x[l] + x[l + 1]) + (x[l + 2] + x[l + 3]);
        for (int i = 1; i < 4; i++) x[l + i] = x[l];
    }
}
static inline bool any_of_warp(const bool x[LANES_HERE]) {
    bool any = false;
    EACH_LANE(l) any |= x[l];
    return any;
}
static inline void copy_ahead(const void *from, const int bytes, bool there, void *to) {
    if (there)
        memcpy(to, from, (size_t)bytes);
    else
        memset(to, 0, (size_t)bytes);
}
static inline void wait_for_copies(void) {}
#else
SL_INLINE void read_operand(const uint16_t *x, size_t first, size_t pitch, const enum operand_rows how,
                            struct operand *to) {
    (void)x, (void)first, (void)pitch, (void)how, (void)to;
}
SL_INLINE void product_from(const struct sums *start, const struct operand *left, const struct operand *right,
                            const int half, struct sums *sums) {
    (void)start, (void)left, (void)right, (void)half, (void)sums;
}
SL_INLINE void largest_of_row(float x[LANES_HERE]) { (void)x; }
SL_INLINE void sum_of_row(float x[LANES_HERE]) { (void)x; }
SL_INLINE bool any_of_warp(const bool x[LANES_HERE]) { return x[0]; }
SL_INLINE void copy_ahead(const void *from, const int bytes, bool there, void *to) {
    (void)from, (void)bytes, (void)there, (void)to;
}
SL_INLINE void wait_for_copies(void) {}
#endif

SL_INLINE void add_product(const struct operand *left, const struct operand *right, const int half, struct sums *sums) {
    product_from(sums, left, right, half, sums);
}

/* Rounds two tiles of sums, side by side, to a left operand. */
SL_INLINE void round_sums(const struct sums *first, const struct sums *second, struct operand *to) {
    EACH_LANE(l) {
        for (int i = 0; i < 2; i++) {
            to->x[l][i] = pack_bf16(first->x[l][2 * i], first->x[l][2 * i + 1]);
            to->x[l][2 + i] = pack_bf16(second->x[l][2 * i], second->x[l][2 * i + 1]);
        }
    }
}

/* The row, and the column, in a tile of element I of lane HERE's sums. */
SL_INLINE size_t row_of_sum(int here, int i) { return (size_t)(lane_of(here) / 4 + i / 2 * 8); }
SL_INLINE size_t column_of_sum(int here, int i) { return (size_t)(lane_of(here) % 4 * 2 + i % 2); }

#endif
