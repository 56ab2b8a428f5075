/* attention_sight_internal.h - visibility of keys to a block's queries, by strips, documents and windows; rows of
 * arrays; heads of queries and of keys; prefetches for the next block; and products with the gradients of scores. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_SIGHT_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_SIGHT_INTERNAL_H

#include "layers/kernels/attention/attention.h"
#include "layers/kernels/loops/settle_internal.h"
#include "layers/kernels/attention/tiles_internal.h"

static const float log_2 = 0.693147181f, per_log_2 = 1.44269504f;

/* Queries, or keys, in a strip. */
#if defined(SL_DEVICE_CUDA)
enum { STRIP = 32 };
#else
enum { STRIP = 16 };
#endif

enum { NARROW = 64 }; /* most columns of a head whose rows are prefetched */

/* A block of queries and one of keys. Query i sees key j if j + ahead <= i. */
struct sight {
    size_t queries, keys;
    int64_t ahead;
};

/* COUNT rows of a block from FIRST on, and the rows [from, end) of the other block that see, or are visible to, at
 * least one of them. */
struct strip {
    size_t first, count, from, end;
};

SL_INLINE bool all_see_all(const struct sight *s) { return (int64_t)s->keys - 1 + s->ahead <= 0; }

SL_INLINE struct strip strip_of_queries(const struct sight *s, size_t first) {
    const size_t count = smaller(all_see_all(s) ? s->queries : STRIP, s->queries - first);
    return (struct strip){first, count, 0, clamp((int64_t)(first + count) - s->ahead, s->keys)};
}

SL_INLINE struct strip strip_of_keys(const struct sight *s, size_t first) {
    const size_t count = smaller(all_see_all(s) ? s->keys : STRIP, s->keys - first);
    return (struct strip){first, count, clamp((int64_t)first + s->ahead, s->queries), s->queries};
}

/* ---- documents and windows ---- */

/* Lower than any score, with a difference that exp2 can handle: queries that have seen no key yet begin with it. */
static const float LOWEST = -1e30f;

/* How far back the queries of a sequence see (attention.h). */
struct past {
    size_t position, window;
    const int32_t *places;
};

SL_INLINE bool is_limited(const struct past *past) { return past->places || past->window; }

/* first_key returns QUERY's first visible key; first_block the first key of its block. Later queries see no earlier
 * ones. */
SL_INLINE size_t first_key(const struct past *past, size_t query) {
    const size_t own = past->position + query, window = past->window;
    const size_t first = past->places ? own - (size_t)past->places[query] : 0;
    return window && own + 1 > first + window ? own + 1 - window : first;
}
SL_INLINE size_t first_block(const struct past *past, size_t query, size_t block) {
    return first_key(past, query) / block * block;
}

/* Writes VALUE into X, and into ALSO unless it is NULL, for keys before a query's first visible key; keys from FROM on,
 * queries from FIRST on. Elements of neighbouring keys are KEY apart, of neighbouring queries QUERY apart. */
SL_INLINE void fill_others(const struct past *past, const struct sight *sight, size_t from, size_t first, float value,
                           size_t key, size_t query, float *x, float *also) {
    EACH_TILE()
    for (size_t i = 0; i < sight->queries; i++) {
        const size_t end = clamp((int64_t)first_key(past, first + i) - (int64_t)from, sight->keys);
        for (size_t j = 0; j < end; j++) {
            x[j * key + i * query] = value;
            if (also) also[j * key + i * query] = value;
        }
    }
}

/* ---- rows ---- */

/* Returns rows of X, of DTYPE, from element FIRST on. */
SL_INLINE struct rows rows_of(enum sl_dtype dtype, const void *x, size_t first, size_t stride, size_t cols) {
    if (dtype == SL_BF16) return (struct rows){NULL, stride, cols, (const uint16_t *)x + first};
    return (struct rows){(const float *)x + first, stride, cols, NULL};
}

/* If ROUNDS, rounds ROWS rows of X in place, and also writes them to STORED as bf16 unless it is NULL. Otherwise X does
 * not change, and STORED receives the bf16 copy.
 * Rows of X and of the copy are STRIDE elements apart, and begin AT elements after the arrays' start. */
SL_INLINE void settle_rows(size_t rows, size_t cols, size_t stride, size_t at, bool rounds, float *x,
                           uint16_t *stored) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        const size_t row = at + i * (stride + nothing());
        if (rounds)
            settle_block(row, row + cols, x, stored);
        else
            store_block(row, row + cols, x, stored);
    }
}

SL_INLINE void scale_rows(size_t rows, const float *factor, size_t cols, size_t stride, float *o) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        const float by = factor[i];
        if (by == 1.0f) continue;
        float *row = o + i * (stride + nothing());
        size_t c = 0;
        for (; c + LANES <= cols; c += LANES) store(row + c, by * load(row + c));
        for (; LANES > 1 && c < cols; c++) row[c] *= by;
    }
}

/* ---- heads ---- */

/* One head of one sequence. */
struct head {
    struct rows q, q_rope, k, v, k_rope;
    struct past past; /* of the sequence's queries */
    size_t keys;      /* of the sequence */
    float scale;
};

/* The scale of scores. */
SL_INLINE float scale_of(const struct sl_attention *shape) { return 1.0f / sqrtf((float)(shape->width + shape->rope)); }

/* Returns head HEAD of sequence SEQUENCE. QUERIES: the dtype of q and q_rope. */
SL_INLINE struct head head_at(const struct sl_attention *shape, size_t sequence, size_t head, enum sl_dtype queries,
                              const void *q, const void *q_rope, const void *k, const void *v, const void *k_rope) {
    const size_t width = shape->width, rope = shape->rope, stride = shape->key_stride;
    const size_t query = sequence * shape->queries, key = sequence * shape->key_rows;
    const size_t column = sl_attention_key_head(shape, head) * width, all = shape->heads * width;
    const size_t turned = rope ? query * (shape->heads * rope) + head * rope : 0;
    return (struct head){
        .q = rows_of(queries, q, query * all + head * width, all, width),
        .q_rope = rows_of(queries, rope ? q_rope : q, turned, shape->heads * rope, rope),
        .k = rows_of(shape->keys, k, key * stride + column, stride, width),
        .v = rows_of(shape->keys, v, key * stride + column, stride, width),
        .k_rope = rows_of(shape->keys, rope ? k_rope : k, rope ? key * rope : 0, rope, rope),
        .past = {shape->position, shape->window, shape->places ? shape->places + query : NULL},
        .keys = shape->key_rows,
        .scale = scale_of(shape),
    };
}

/* Returns head NUMBER, counted over all sequences. */
SL_INLINE struct head head_of(const struct sl_attention *shape, size_t number, enum sl_dtype queries, const void *q,
                              const void *q_rope, const void *k, const void *v, const void *k_rope) {
    return head_at(shape, number / shape->heads, number % shape->heads, queries, q, q_rope, k, v, k_rope);
}

/* The heads that read head KEY_HEAD of k and v: [first, end). */
struct span {
    size_t first, end;
};

SL_INLINE struct span heads_of(const struct sl_attention *shape, size_t key_head) {
    const size_t group = shape->group > 1 ? shape->group : 1, lead = group > 1 ? shape->lead : 0;
    const size_t first = key_head * group, end = first + group;
    return (struct span){first > lead ? first - lead : 0, end > lead ? smaller(end - lead, shape->heads) : 0};
}

/* ---- prefetches ---- */

/* Sets WANTED to the rows that forward's block NUMBER is the first block of its head to read or write. A head has
 * BLOCKS blocks of up to BLOCK queries. Rows of a head have a large stride. For heads of 128 columns and long
 * sequences, forward was slower with prefetches than without. Keys in bf16 are not prefetched. */
SL_INLINE void want_block(const struct sl_attention *shape, size_t number, size_t blocks, size_t block, const float *q,
                          const void *k, const void *v, const float *o, struct wanted *wanted) {
    const size_t heads = shape->heads, width = shape->width, first = number % blocks * block;
    const size_t sequence = number / blocks / heads, head = number / blocks % heads;
    if (sequence >= shape->sequences || width > NARROW || shape->keys != SL_F32) return;
    const size_t query = ((sequence * shape->queries + first) * heads + head) * width;
    const size_t seen = first ? shape->position + first : 0; /* keys of earlier blocks */
    const size_t key = (sequence * shape->key_rows + seen) * shape->key_stride;
    const float *const of_keys[] = {v, k};
    wanted->rows = smaller(block, shape->queries - first);
    want(wanted, 1, &o, query, heads * width, width);
    if (seen + wanted->rows <= shape->key_rows)
        want(wanted, 2, of_keys, key + sl_attention_key_head(shape, head) * width, shape->key_stride, width);
    want(wanted, 1, &q, query, heads * width, width);
}

/* ---- gradients of scores, [queries, keys], with BLOCK elements from one query to the next ---- */

/* Sums per query: forward's logsum; and delta = o . d_o. */
struct row_sums {
    const float *logsum, *delta;
};

/* p = 2^(scores - logsum), ds = p (dp - delta) scale, both 0 if a query does not see the key. p replaces scores, ds
 * replaces dp. */
SL_INLINE void score_gradients_of(const struct sight *sight, const size_t block, size_t query, size_t keys,
                                  const bool hidden, float logsum, float delta, float scale, float *scores, float *dp) {
    const int32_t seen = (int32_t)((int64_t)query - sight->ahead); /* the last visible key */
    for (size_t group = 0; group < keys; group += LANES) {
        float *p = scores + query * block + group, *ds = dp + query * block + group;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) {
            const float e = sl_exp2(p[l] - logsum);
            p[l] = e;
            ds[l] = e * (ds[l] - delta) * scale;
        }
        if (!hidden || (int32_t)group + LANES - 1 <= seen) continue;
        store(p, in_lanes(0, seen - (int32_t)group, load(p), (vector){0}));
        store(ds, in_lanes(0, seen - (int32_t)group, load(ds), (vector){0}));
    }
}

SL_INLINE void score_gradients(const struct sight *sight, const size_t block, struct row_sums sums, float scale,
                               float *scores, float *dp) {
    const bool hidden = !all_see_all(sight);
    EACH_TILE()
    for (size_t i = 0; i < sight->queries; i++) {
        const float logsum = sums.logsum[i] * per_log_2, delta = sums.delta[i];
        if (hidden)
            score_gradients_of(sight, block, i, strip_of_queries(sight, i / STRIP * STRIP).end, true, logsum, delta,
                               scale, scores, dp);
        else
            score_gradients_of(sight, block, i, sight->keys, false, logsum, delta, scale, scores, dp);
    }
}

/* Writes delta of a head's queries FIRST to QUERIES, whose rows begin AT elements after O and D_O. HALF: o is bf16. */
SL_INLINE void make_deltas(size_t first, size_t queries, size_t width, size_t stride, bool half, const void *o,
                           const float *d_o, size_t at, float *delta) {
    EACH_TILE()
    for (size_t i = first; i < queries; i++) {
        const size_t row = at + i * (stride + nothing());
        delta[i] = half ? dot(width, (const uint16_t *)o + row, true, d_o + row)
                        : dot(width, (const float *)o + row, false, d_o + row);
    }
}

/* SIGHT is the thread's own copy, here and below: on GPUs thread 0 may already write the next shared one, because no
 * thread waits after the last product.
 *
 * dk [keys, x's columns] (+)= ds [queries, keys]^T x */
SL_INLINE void add_to_keys(const struct sight sight, const size_t block, const float *ds, struct rows x,
                           bool accumulate, float *dk, size_t stride, struct wanted *wanted) {
    for (size_t first = 0; x.cols && first < sight.keys;) {
        const struct strip s = strip_of_keys(&sight, first);
        multiply((struct product){s.count,
                                  x.cols,
                                  accumulate,
                                  dk + first * stride,
                                  stride,
                                  {{s.end - s.from, ds + s.from * block + first, 1, block, x.at + s.from * x.stride,
                                    x.stride}},
                                  .wanted = wanted},
                 BY_TERMS);
        first += s.count;
    }
}

/* dq [queries, x's columns] (+)= ds [queries, keys] x */
SL_INLINE void add_to_queries(const struct sight sight, const size_t block, const float *ds, struct rows x,
                              bool accumulate, float *dq, size_t stride, struct wanted *wanted) {
    for (size_t first = 0; x.cols && first < sight.queries;) {
        const struct strip s = strip_of_queries(&sight, first);
        multiply((struct product){s.count,
                                  x.cols,
                                  accumulate,
                                  dq + first * stride,
                                  stride,
                                  {{s.end, ds + first * block, block, 1, x.at, x.stride}},
                                  .wanted = wanted},
                 BY_ROWS);
        first += s.count;
    }
}

#endif
