/* attention_flow_internal.h - copies of rows, as bf16, into a team's memory for attention on tensor cores: the rows of
 * its own block, and blocks of the other rows; the next block arrives while the team computes with one. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_FLOW_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_FLOW_INTERNAL_H

#include "layers/kernels/attention/attention_sight_internal.h"
#include "layers/kernels/attention/attention_warps_internal.h"
#include "layers/kernels/attention/warps_internal.h"

/* OWN: queries, or keys in backward, of a team: one tile of 16 rows per warp. DEEP: most such tiles of a warp. */
enum { OWN = 16 * WARPS, DEEP = 2, ACROSS = SL_WARPS_COLUMNS / 8, APART_BY = 8 };

/* Rows of COLUMNS bf16 in a team's memory, with a pitch that puts eight neighbouring rows into different banks. */
#define SL_PITCH(columns) ((columns) + APART_BY)
#define SL_ROOM(name, rows, columns) _Alignas(16) uint16_t name[(rows) * SL_PITCH(columns)]

typedef float four_floats __attribute__((vector_size(16), may_alias));
typedef uint32_t two_words __attribute__((vector_size(8), may_alias)); /* four bf16 */
typedef uint32_t one_word __attribute__((may_alias));                  /* two */

/* ---- rows ---- */

/* Rows of COLUMNS, APART bytes from one to the next. Row numbers of a sequence, and these numbers, have 32 bits, which
 * take one register; their product takes one instruction. */
struct lines {
    const char *at;
    uint32_t apart, columns;
    bool half, aligned; /* half: bf16; aligned: four elements can be read at once */
};

SL_INLINE struct lines lines_of(struct rows x) {
    const size_t apart = x.stride * (x.bf16 ? sizeof *x.bf16 : sizeof *x.at), four = 4 * (x.bf16 ? 2 : 4);
    const void *at = x.bf16 ? (const void *)x.bf16 : (const void *)x.at;
    return (struct lines){at, (uint32_t)apart, (uint32_t)x.cols, x.bf16, ((uintptr_t)at | apart) % four == 0};
}

/* Reads four neighbours of row ROW of X as bf16, in two words. */
SL_INLINE void read_four(struct lines x, uint32_t row, uint32_t column, uint32_t to[2]) {
    const char *at = line(x.at, row, x.apart);
    if (x.half) {
        const uint16_t *from = (const uint16_t *)(const void *)at + column;
        const two_words both = x.aligned
                                   ? *(const two_words *)(const void *)from
                                   : (two_words){from[0] | (uint32_t)from[1] << 16, from[2] | (uint32_t)from[3] << 16};
        to[0] = both[0];
        to[1] = both[1];
        return;
    }
    const float *from = (const float *)(const void *)at + column;
    const four_floats all =
        x.aligned ? *(const four_floats *)(const void *)from : (four_floats){from[0], from[1], from[2], from[3]};
    to[0] = pack_bf16(all[0], all[1]);
    to[1] = pack_bf16(all[2], all[3]);
}

/* TO [ALL, PITCH], from column COLUMN on, = COUNT rows of X from FIRST on, padded with zeros. All threads of a team
 * call this: 16 of them share a row's columns. */
SL_INLINE void share_lines(struct lines x, uint32_t first, uint32_t count, const uint32_t all, uint32_t column,
                           const uint32_t pitch, uint16_t *to) {
    for (int here = 0; here < THREADS_HERE; here++) {
        const uint32_t thread = afresh((uint32_t)thread_of(here));
        for (uint32_t row = thread / 16; row < all; row += TEAM / 16) {
            for (uint32_t c = thread % 16 * 4; c < x.columns; c += 64) {
                uint32_t two[2] = {0, 0};
                if (row < count) read_four(x, first + row, c, two);
                uint32_t *out = (uint32_t *)(void *)(to + row * pitch + column + c);
                out[0] = two[0];
                out[1] = two[1];
            }
        }
    }
}

/* ---- whole rows ---- */

/* Returns whether rows of X can be WHOLE: they have COLUMNS columns, and 16 bytes can be read at once. */
SL_INLINE bool are_whole(struct rows x, size_t columns) {
    const struct lines lines = lines_of(x);
    return x.cols == columns && ((uintptr_t)lines.at | lines.apart) % 16 == 0;
}

/* share_lines for whole rows of bf16, asynchronously. A thread copies 16 bytes of every DOWN-th row. */
SL_INLINE void copy_lines(struct lines x, uint32_t first, uint32_t count, const uint32_t all, const uint32_t columns,
                          uint16_t *to) {
    const uint32_t across = columns / 8, down = TEAM / across, pitch = SL_PITCH(columns);
    for (int here = 0; here < THREADS_HERE; here++) {
        const uint32_t thread = count == all ? (uint32_t)thread_of(here) : afresh((uint32_t)thread_of(here));
        const uint32_t row = thread / across, column = thread % across * 8, begin = afresh(first + row);
        uint16_t *out = to + row * pitch + column;
        SL_UNROLL
        for (uint32_t i = 0; i < all; i += down) {
            const bool there = count == all || row + i < count;
            const uint32_t own = there ? begin + i : first;
            copy_ahead(line(x.at + column * sizeof *to, own, x.apart), 16, there, out + i * pitch);
        }
    }
}

/* share_lines for whole rows of floats, synchronously. */
SL_INLINE void round_lines(struct lines x, uint32_t first, uint32_t count, const uint32_t all, const uint32_t columns,
                           uint16_t *to) {
    enum { AT_ONCE = 4 };
    const uint32_t across = columns / 4, down = TEAM / across, pitch = SL_PITCH(columns);
    for (int here = 0; here < THREADS_HERE; here++) {
        const uint32_t thread = afresh((uint32_t)thread_of(here)), column = thread % across * 4;
        for (uint32_t row = thread / across; row < all; row += AT_ONCE * down) {
            const uint32_t begin = first + row;
            uint16_t *out = to + row * pitch + column;
            four_floats read[AT_ONCE];
            SL_UNROLL
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                const char *from = line(x.at + column * sizeof(float), begin + i * down, x.apart);
                read[i] = row + i * down < count ? *(const four_floats *)(const void *)from : (four_floats){0};
            }
            SL_UNROLL
            for (uint32_t i = 0; i < AT_ONCE; i++)
                *(two_words *)(void *)(out + i * down * pitch) =
                    (two_words){pack_bf16(read[i][0], read[i][1]), pack_bf16(read[i][2], read[i][3])};
        }
    }
}

/* ---- blocks of rows ---- */

/* Rows to copy, with rotary columns behind the other columns. */
struct source {
    struct lines rows, turned;
};

SL_INLINE struct source source_of(struct rows x, struct rows turned) {
    return (struct source){lines_of(x), lines_of(turned)};
}

/* Copies COUNT rows of X from FIRST on, padded with zeros to ALL rows. */
SL_INLINE void bring(const struct source *x, uint32_t first, uint32_t count, const uint32_t all, const int columns,
                     const bool whole, uint16_t *to) {
    const uint32_t pitch = SL_PITCH((uint32_t)columns);
    if (!whole) {
        share_lines(x->rows, first, count, all, 0, pitch, to);
        share_lines(x->turned, first, count, all, x->rows.columns, pitch, to);
    } else if (x->rows.half) {
        copy_lines(x->rows, first, count, all, (uint32_t)columns, to);
    } else {
        round_lines(x->rows, first, count, all, (uint32_t)columns, to);
    }
}

/* Copies rows of X and of Y. */
SL_INLINE void bring_both(const struct source *x, const struct source *y, uint32_t first, uint32_t count,
                          const uint32_t all, const int columns, const bool whole, uint16_t *to, uint16_t *to_y) {
    if (whole && x->rows.half && y->rows.half && count == all) {
        copy_lines(x->rows, first, all, all, (uint32_t)columns, to);
        copy_lines(y->rows, first, all, all, (uint32_t)columns, to_y);
        return;
    }
    bring(x, first, count, all, columns, whole, to);
    bring(y, first, count, all, columns, whole, to_y);
}

#endif
