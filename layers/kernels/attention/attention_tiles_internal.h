/* attention_tiles_internal.h - parts shared by attention's kernels on tensor cores: tiles of scores, visibility of
 * keys, and writes of results. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_TILES_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_TILES_INTERNAL_H

#include "layers/kernels/attention/attention_flow_internal.h"

/* ---- blocks ---- */

/* Rows per streamed block, by columns of a head: keys, or queries if a team has keys. Two blocks of two arrays are in
 * the team's memory of 48 KB; the team's own rows pass through the same room. */
#define SL_NEAR(columns, narrow, wide) ((columns) == 64 ? (narrow) : (wide))
enum { KEYS_64 = 64, KEYS_128 = 32, FEW_64 = 32, FEW_128 = 16 };

/* A block of a head's queries, or keys: OWN rows, or DEEP times as many, or the remaining rows. */
struct block {
    struct head head;
    size_t first, count, row; /* first: in its sequence; row: the block's first row, counted over all rows */
    size_t number;            /* the head's number */
};

static inline uint32_t blocks_of(size_t queries, size_t own) { return (uint32_t)((queries + own - 1) / own); }

/* Returns block NUMBER, of OWN rows each, of the queries of head HEAD of sequence SEQUENCE. */
SL_INLINE struct block block_of(const struct sl_attention *shape, size_t sequence, size_t head, size_t number,
                                const size_t own, enum sl_dtype dtype, const void *q, const void *q_rope, const void *k,
                                const void *v, const void *k_rope) {
    const size_t first = number * own;
    return (struct block){.head = head_at(shape, sequence, head, dtype, q, q_rope, k, v, k_rope),
                          .first = first,
                          .count = smaller(own, shape->queries - first),
                          .row = sequence * shape->queries + first,
                          .number = head};
}

/* Columns of a head's values, and of its keys; constants if rows are WHOLE. */
SL_INLINE size_t width_of(const struct head *h, const int columns, const bool whole) {
    return whole ? (size_t)columns : h->v.cols;
}
SL_INLINE size_t depth_of(const struct head *h, const int columns, const bool whole) {
    return whole ? (size_t)columns : h->v.cols + h->k_rope.cols;
}

/* The keys and values of a head. */
struct key_source {
    struct source k, v;
};

SL_INLINE struct key_source keys_of(const struct head *h) {
    const struct rows none = {0};
    struct key_source source = {source_of(h->k, h->k_rope), source_of(h->v, none)};
    source.v.rows.half = source.k.rows.half; /* as it is: so it takes no register of its own */
    return source;
}

/* Copies a block of keys and values from FIRST on, at most up to END, to TO: first KEYS rows of keys, then values. */
SL_INLINE void bring_keys(const struct key_source *x, uint32_t first, uint32_t end, const uint32_t keys,
                          const int columns, const bool whole, uint16_t *to) {
    const uint32_t count = end - first < keys ? end - first : keys;
    bring_both(&x->k, &x->v, first, count, keys, columns, whole, to, to + keys * SL_PITCH(columns));
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

SL_INLINE void scale_tiles(const int tiles, float by, struct sums *sums) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 4; i++) sums[n].x[l][i] *= by;
        }
    }
}

/* Reads the operands of a warp's 16 rows, from X on, of DEPTH columns. */
SL_INLINE void read_rows(const uint16_t *x, size_t depth, const int columns, struct operand *to) {
    SL_UNROLL
    for (int k = 0; k < columns / 16; k++) {
        if ((size_t)k * 16 < depth) read_operand(x, (size_t)k * 16, SL_PITCH(columns), LEFT, &to[k]);
    }
}

/* sums [16 DOWN, 8 TILES] = START + left right^T over DEPTH columns; right's rows are the sums' columns. Left's
 * operands are HELD, from read_rows, or, if HELD is NULL, in the team's memory. In START, tiles 16 rows further are
 * NEXT_ROWS apart, tiles 8 columns further NEXT_COLUMNS apart. Each read of right serves all rows. */
SL_INLINE void multiply_rows(const struct operand (*held)[ACROSS / 2], const uint16_t *left, const uint16_t *right,
                             size_t depth, const int columns, const int down, const int tiles, const struct sums *start,
                             const int next_rows, const int next_columns, struct sums *sums) {
    SL_UNROLL
    for (int k = 0; k < columns / 16; k++) {
        struct operand a[DEEP];
        if ((size_t)k * 16 >= depth) continue;
        SL_UNROLL
        for (int d = 0; d < down; d++) {
            if (held)
                a[d] = held[d][k];
            else
                read_operand(left, (size_t)d * 16 * SL_PITCH(columns) + (size_t)k * 16, SL_PITCH(columns), LEFT, &a[d]);
        }
        SL_UNROLL
        for (int n = 0; n < tiles; n += 2) {
            struct operand b;
            read_operand(right, (size_t)n * 8 * SL_PITCH(columns) + (size_t)k * 16, SL_PITCH(columns), RIGHT, &b);
            SL_UNROLL
            for (int i = 0; i < 2 * down; i++) {
                const int d = i / 2, column = n + i % 2;
                struct sums *to = &sums[d * tiles + column];
                product_from(k ? to : &start[d * next_rows + column * next_columns], &a[d], &b, i % 2, to);
            }
        }
    }
}

/* to [16 DOWN, WIDTH] += weights [16 DOWN, 8 TILES] right [8 TILES, WIDTH], with the weights rounded to bf16. */
SL_INLINE void add_weighted(const struct sums *weights, const int down, const int tiles, const uint16_t *right,
                            size_t width, const int columns, struct sums (*to)[ACROSS]) {
    SL_UNROLL
    for (int k = 0; k < tiles; k += 2) {
        struct operand a[DEEP], b;
        SL_UNROLL
        for (int d = 0; d < down; d++) round_sums(&weights[d * tiles + k], &weights[d * tiles + k + 1], &a[d]);
        SL_UNROLL
        for (int n = 0; n < columns / 8; n += 2) {
            if ((size_t)n * 8 >= width) continue;
            read_operand(right, (size_t)k * 8 * SL_PITCH(columns) + (size_t)n * 8, SL_PITCH(columns), TURNED, &b);
            SL_UNROLL
            for (int d = 0; d < down; d++) {
                add_product(&a[d], &b, 0, &to[d][n]);
                add_product(&a[d], &b, 1, &to[d][n + 1]);
            }
        }
    }
}

/* ---- visibility ---- */

/* Writes VALUE over the elements of x [16, 8 TILES] whose query (row) does not see its key (column). FIRST is the first
 * row's query, LAST - 1 the last query; rows after it are treated like it. */
SL_INLINE void hide_keys(const struct head *h, size_t first, size_t last, size_t from, const int tiles, float value,
                         struct sums *x) {
    EACH_LANE(l) {
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            const size_t query = smaller(first + row_of_sum(l, 2 * half) + nothing(), last - 1);
            const int64_t own =
                (int64_t)(from + column_of_sum(l, 0)); /* so that tile numbers become constants in instructions */
            const int begin = (int)((int64_t)first_key(&h->past, query) - own);
            const int end = (int)((int64_t)smaller(h->past.position + query + 1, h->keys) - own);
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    const int key = n * 8 + i % 2;
                    if (key < begin || key >= end) x[n].x[l][i] = value;
                }
            }
        }
    }
}

/* Writes 0 over the elements of X and ALSO [16, 8 TILES] whose key (row) is not visible to its query (column). KEY is
 * the first row's key; columns begin at query FIRST. */
SL_INLINE void hide_queries(const struct head *h, uint32_t key, uint32_t first, uint32_t queries, const int tiles,
                            struct sums *x, struct sums *also) {
    EACH_LANE(l) {
        const uint32_t query = first + (uint32_t)column_of_sum(l, 0) + nothing();
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            const uint32_t own = key + (uint32_t)row_of_sum(l, 2 * half) + nothing();
            const int begin = (int)own - (int)query;
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    const int at = n * 8 + i % 2;
                    bool hidden = at < begin;
                    if (is_limited(&h->past) && query + (uint32_t)at < queries)
                        hidden |= own < first_key(&h->past, query + (uint32_t)at);
                    if (hidden) x[n].x[l][i] = also[n].x[l][i] = 0.0f;
                }
            }
        }
    }
}

/* Keys visible to all queries [first, last): [first, end), empty if end <= first. Rows of a sequence are counted in 32
 * bits, which take one register. */
struct clear {
    uint32_t first, end;
};

SL_INLINE struct clear clear_keys(const struct head *h, size_t first, size_t last) {
    return (struct clear){(uint32_t)first_key(&h->past, last - 1),
                          (uint32_t)smaller(h->past.position + first + 1, h->keys)};
}

/* Visible keys of a warp's queries, which are ROWS rows of a block from ROW on: keys visible to all of them, and the
 * end of the keys visible to any of them. */
struct view {
    struct clear clear;
    uint32_t end;
};

SL_INLINE struct view view_of(const struct block *b, size_t row, size_t rows) {
    const struct past *past = &b->head.past;
    if (row >= b->count) return (struct view){{0, 0}, 0};
    const size_t first = b->first + row, last = b->first + smaller(b->count, row + rows);
    return (struct view){clear_keys(&b->head, first, last), (uint32_t)smaller(past->position + last, b->head.keys)};
}

/* Returns whether all of these queries see all keys [from, end). */
SL_INLINE bool sees_all(const struct clear *clear, uint32_t from, uint32_t end) {
    return from >= clear->first && end <= clear->end;
}

/* Returns the first of the queries [first, end) that comes too late to see KEY, or END. */
SL_INLINE uint32_t first_behind(const struct head *h, uint32_t key, uint32_t first, uint32_t end) {
    if (!is_limited(&h->past)) return end;
    while (first < end) {
        const uint32_t half = first + (end - first) / 2;
        if (first_key(&h->past, half) > key)
            end = half;
        else
            first = half + 1;
    }
    return first;
}

/* ---- results ---- */

/* Writes two neighbours of a row at element AT of Y. ALIGNED: both bf16 can be stored at once. */
SL_INLINE void write_pair(float first, float second, struct sl_out y, size_t at, bool aligned) {
    const uint32_t both = pack_bf16(first, second);
    float *floats = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
    if (stored && aligned) {
        *(one_word *)(void *)(stored + at) = both;
    } else if (stored) {
        stored[at] = (uint16_t)both;
        stored[at + 1] = (uint16_t)(both >> 16);
    }
    if (!floats) return;
    floats[at] = y.rounds ? sl_float_of_bits(both << 16) : first;
    floats[at + 1] = y.rounds ? sl_float_of_bits(both & 0xffff0000u) : second;
}

/* Elements of y [16, COLUMNS] from AT on, rows STRIDE apart, = sums from tile FIRST on; rows from COUNT on do not
 * exist. */
SL_INLINE void write_tiles(const struct sums *sums, const size_t first, size_t columns, const int most, size_t count,
                           struct sl_out y, size_t at, size_t stride) {
    const uint16_t *stored = sl_out_halves(y);
    const bool aligned = stride % 2 == 0 && ((uintptr_t)stored + at * sizeof *stored) % sizeof(one_word) == 0;
    EACH_LANE(l) {
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            const size_t row = row_of_sum(l, 2 * half) + nothing(); /* see tiles_internal.h */
            const size_t from = at + row * stride + column_of_sum(l, 0) - first * 8;
            if (row >= count) continue;
            SL_UNROLL
            for (int n = 0; n < most; n++) {
                if ((size_t)n < first || (size_t)n * 8 >= first * 8 + columns) continue;
                write_pair(sums[n].x[l][2 * half], sums[n].x[l][2 * half + 1], y, from + (size_t)n * 8, aligned);
            }
        }
    }
}

#endif
