/* attention_tiles_internal.h - what attention's kernels on tensor cores share: rows in a team's memory, tiles of
 * scores, what is seen, and what is written. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_TILES_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_TILES_INTERNAL_H

#include "layers/kernels/attention/attention_sight_internal.h"
#include "layers/kernels/attention/attention_warps_internal.h"
#include "layers/kernels/attention/warps_internal.h"

/* QUERIES, or keys in backward, of a team: a tile's 16 rows for each warp. */
enum { OWN = 16 * WARPS, ACROSS = SL_WARPS_COLUMNS / 8, APART_BY = 8 };

/* Rows of COLUMNS bf16 in a team's memory: so far apart that eight neighbours lie in different banks. */
#define SL_PITCH(columns) ((columns) + APART_BY)
#define SL_ROOM(name, rows, columns) _Alignas(16) uint16_t name[(rows) * SL_PITCH(columns)]

/* ---- rows in the team's memory ---- */

typedef float four_floats __attribute__((vector_size(16), may_alias));
typedef uint32_t two_words __attribute__((vector_size(8), may_alias)); /* four bf16 */
typedef uint32_t one_word __attribute__((may_alias));                  /* two */

/* Four neighbours of row ROW of X, as bf16 in two words. ALIGNED: they can be read at once. */
SL_INLINE void read_four(struct rows x, size_t row, size_t column, bool aligned, uint32_t to[2]) {
    const size_t at = row * x.stride + column;
    if (x.bf16) {
        const uint16_t *from = x.bf16 + at;
        const two_words both = aligned
                                   ? *(const two_words *)(const void *)from
                                   : (two_words){from[0] | (uint32_t)from[1] << 16, from[2] | (uint32_t)from[3] << 16};
        to[0] = both[0];
        to[1] = both[1];
        return;
    }
    const float *from = x.at + at;
    const four_floats all =
        aligned ? *(const four_floats *)(const void *)from : (four_floats){from[0], from[1], from[2], from[3]};
    to[0] = pack_bf16(all[0], all[1]);
    to[1] = pack_bf16(all[2], all[3]);
}

/* TO [ALL, PITCH], from column COLUMN on, = the first COUNT rows of X, and zeros behind them. All threads of a team
 * call this: 16 of them have a row's columns. */
SL_INLINE void share_rows(struct rows x, size_t count, const size_t all, size_t column, const size_t pitch,
                          uint16_t *to) {
    const uint32_t cols = (uint32_t)x.cols; /* 32 bits take one register */
    const bool aligned = x.stride % 4 == 0 && (x.bf16 ? (uintptr_t)x.bf16 % 8 : (uintptr_t)x.at % 16) == 0;
    for (int here = 0; here < THREADS_HERE; here++) {
        const uint32_t thread = (uint32_t)thread_of(here);
        for (uint32_t row = thread / 16; row < (uint32_t)all; row += TEAM / 16) {
            for (uint32_t c = thread % 16 * 4; c < cols; c += 64) {
                uint32_t two[2] = {0, 0};
                if (row < count) read_four(x, row, c, aligned, two);
                uint32_t *out = (uint32_t *)(void *)(to + row * pitch + column + c);
                out[0] = two[0];
                out[1] = two[1];
            }
        }
    }
}

/* So with columns that have rotary positions behind the others. */
SL_INLINE void share_both(struct rows x, struct rows x_rope, size_t first, size_t count, const size_t all,
                          const size_t pitch, uint16_t *to) {
    share_rows(from_row(x, first), count, all, 0, pitch, to);
    if (x_rope.cols) share_rows(from_row(x_rope, first), count, all, x.cols, pitch, to);
}

/* ---- tiles ---- */

SL_INLINE void clear_tiles(const int tiles, struct sums *sums) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 4; i++) sums[n].x[l][i] = 0.0f;
        }
    }
}

/* sums [16, 8 TILES] = left right^T over DEPTH columns; right's rows are the sums' columns. */
SL_INLINE void multiply_rows(const uint16_t *left, const uint16_t *right, size_t depth, const size_t pitch,
                             const int tiles, struct sums *sums) {
    clear_tiles(tiles, sums);
    for (size_t k = 0; k < depth; k += 16) {
        struct operand a, b;
        read_operand(left + k, 0, pitch, LEFT, &a);
        SL_UNROLL
        for (int n = 0; n < tiles; n += 2) {
            read_operand(right + k, (size_t)n * 8 * pitch, pitch, RIGHT, &b);
            add_product(&a, &b, 0, &sums[n]);
            add_product(&a, &b, 1, &sums[n + 1]);
        }
    }
}

/* to [16, COLUMNS] += weights [16, 8 TILES] right [8 TILES, COLUMNS], the weights rounded; at most 8 MOST columns. */
SL_INLINE void add_weighted(const struct sums *weights, const int tiles, const uint16_t *right, size_t columns,
                            const size_t pitch, const int most, struct sums *to) {
    SL_UNROLL
    for (int k = 0; k < tiles; k += 2) {
        struct operand a, b;
        round_sums(&weights[k], &weights[k + 1], &a);
        SL_UNROLL
        for (int n = 0; n < most; n += 2) {
            if ((size_t)n * 8 >= columns) continue;
            read_operand(right, (size_t)k * 8 * pitch + (size_t)n * 8, pitch, TURNED, &b);
            add_product(&a, &b, 0, &to[n]);
            add_product(&a, &b, 1, &to[n + 1]);
        }
    }
}

/* ---- what is seen ---- */

/* VALUE in place of what the queries of rows [16, 8 TILES], of which FIRST is the first and LAST - 1 the last, have of
 * keys that they do not see. Rows behind the last one are as that. */
SL_INLINE void hide_keys(const struct head *h, size_t first, size_t last, size_t from, const int tiles, float value,
                         struct sums *x) {
    EACH_LANE(l) {
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            const size_t query = smaller(first + row_of_sum(l, 2 * half), last - 1);
            const int64_t begin = (int64_t)first_key(&h->past, query) - (int64_t)from;
            const int64_t end = (int64_t)smaller(h->past.position + query + 1, h->keys) - (int64_t)from;
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    const int key = n * 8 + (int)column_of_sum(l, i);
                    if (key < (int)begin || key >= (int)end) x[n].x[l][i] = value;
                }
            }
        }
    }
}

/* 0 in place of what the keys of rows [16, 8 TILES], of which KEY is the first, have of queries from FIRST on that do
 * not see them, or are not there. */
SL_INLINE void hide_queries(const struct head *h, size_t key, size_t first, size_t queries, const int tiles,
                            struct sums *x, struct sums *also) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 4; i++) {
                const size_t own = key + row_of_sum(l, i), query = first + (size_t)n * 8 + column_of_sum(l, i);
                if (query < queries && own <= query && own >= first_key(&h->past, query)) continue;
                x[n].x[l][i] = 0.0f;
                also[n].x[l][i] = 0.0f;
            }
        }
    }
}

/* Whether all queries of a block see all keys [from, end). */
SL_INLINE bool sees_all(const struct head *h, size_t first, size_t queries, size_t from, size_t end) {
    return end <= smaller(h->past.position + first + 1, h->keys) && first_key(&h->past, first + queries - 1) <= from;
}

/* ---- what is written ---- */

/* Two neighbours in a row at Y + AT, or as bf16 alone where Y is NULL. ALIGNED: both are stored at once. */
SL_INLINE void write_pair(float first, float second, float *y, size_t at, struct sl_settled left, bool aligned) {
    const uint32_t both = pack_bf16(first, second);
    if (left.stored && aligned) {
        *(one_word *)(void *)(left.stored + at) = both;
    } else if (left.stored) {
        left.stored[at] = (uint16_t)both;
        left.stored[at + 1] = (uint16_t)(both >> 16);
    }
    if (!y) return;
    y[at] = left.rounds ? sl_float_of_bits(both << 16) : first;
    y[at + 1] = left.rounds ? sl_float_of_bits(both & 0xffff0000u) : second;
}

/* y [16, COLUMNS], rows STRIDE apart, = sums from tile FIRST on; rows from COUNT on are not there. AT: of y's first
 * element in an array that is left as LEFT says; Y may be NULL. */
SL_INLINE void write_tiles(const struct sums *sums, const size_t first, size_t columns, const int most, size_t count,
                           float *y, size_t at, size_t stride, struct sl_settled left) {
    const bool aligned = stride % 2 == 0 && ((uintptr_t)left.stored + at * sizeof *left.stored) % sizeof(one_word) == 0;
    EACH_LANE(l) {
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            const size_t row = row_of_sum(l, 2 * half), from = at + row * stride + column_of_sum(l, 0) - first * 8;
            if (row >= count) continue;
            SL_UNROLL
            for (int n = 0; n < most; n++) {
                if ((size_t)n < first || (size_t)n * 8 >= first * 8 + columns) continue;
                write_pair(sums[n].x[l][2 * half], sums[n].x[l][2 * half + 1], y, from + (size_t)n * 8, left, aligned);
            }
        }
    }
}

#endif
