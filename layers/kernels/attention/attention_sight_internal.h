/* attention_sight_internal.h - which keys the queries of a block see, strip by strip, and how far back, rows of arrays,
 * which heads read a head of keys, which rows the next block will read, and what the gradients of scores give queries
 * and keys. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_SIGHT_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_SIGHT_INTERNAL_H

#include "layers/kernels/attention/attention.h"
#include "layers/kernels/rows/settle_internal.h"
#include "layers/kernels/attention/tiles_internal.h"

static const float log_2 = 0.693147181f, per_log_2 = 1.44269504f;

/* Queries, or keys, in a strip. */
#if defined(SL_DEVICE_CUDA)
enum { STRIP = 32 };
#else
enum { STRIP = 16 };
#endif

enum { NARROW = 64 }; /* columns of a head whose rows are asked for, at most */

/* A block of queries and one of keys. Query i sees key j if j + ahead <= i. */
struct sight {
    size_t queries, keys;
    int64_t ahead;
};

/* COUNT rows of a block from FIRST on, and those of the other block that one of them sees, or is seen by: [from, end).
 */
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

/* No score is as low, and exp2 knows its differences: queries that have seen no key yet begin with it. */
static const float LOWEST = -1e30f;

/* How far back the queries of a sequence see: as attention.h says it. */
struct past {
    size_t position, window;
    const int32_t *places;
};

SL_INLINE bool is_limited(const struct past *past) { return past->places || past->window; }

/* The first key that QUERY sees; and that of its block. Later queries see no earlier ones. */
SL_INLINE size_t first_key(const struct past *past, size_t query) {
    const size_t own = past->position + query, window = past->window;
    const size_t first = past->places ? own - (size_t)past->places[query] : 0;
    return window && own + 1 > first + window ? own + 1 - window : first;
}
SL_INLINE size_t first_block(const struct past *past, size_t query, size_t block) {
    return first_key(past, query) / block * block;
}

/* Of the keys from FROM on and the queries from FIRST on, those keys that come before the first that a query sees get
 * VALUE in X and, unless it is NULL, in ALSO, where elements of neighbouring keys are KEY apart, and of neighbouring
 * queries QUERY. */
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

/* Rows of X, of DTYPE, from element FIRST on. */
SL_INLINE struct rows rows_of(enum sl_dtype dtype, const void *x, size_t first, size_t stride, size_t cols) {
    if (dtype == SL_BF16) return (struct rows){NULL, stride, cols, (const uint16_t *)x + first};
    return (struct rows){(const float *)x + first, stride, cols, NULL};
}

/* ROWS of X, which are complete, are LEFT so. Rows of X, and of what is stored, are STRIDE elements apart, and begin AT
 * elements behind X and it. */
SL_INLINE void settle_rows(size_t rows, size_t cols, size_t stride, size_t at, float *x, struct sl_settled left) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        const size_t row = at + i * (stride + nothing());
        if (left.rounds)
            settle_block(row, row + cols, x, left.stored);
        else
            store_block(row, row + cols, x, left.stored);
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

/* Of scores. */
SL_INLINE float scale_of(const struct sl_attention *shape) { return 1.0f / sqrtf((float)(shape->width + shape->rope)); }

/* Head HEAD of sequence SEQUENCE. QUERIES: the dtype of q and q_rope. */
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

/* Head NUMBER of all sequences. */
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

/* ---- what is asked for ---- */

/* Of forward's block NUMBER, each head having BLOCKS of up to BLOCK queries: the rows that no block of its head has
 * read or written before. Rows of a head lie a long way apart. Asking for those of a head of 128 columns was slower at
 * long sequences than to let them come. Keys that are bf16 are not asked for. */
SL_INLINE void want_block(const struct sl_attention *shape, size_t number, size_t blocks, size_t block, const float *q,
                          const void *k, const void *v, const float *o, struct wanted *wanted) {
    const size_t heads = shape->heads, width = shape->width, first = number % blocks * block;
    const size_t sequence = number / blocks / heads, head = number / blocks % heads;
    if (sequence >= shape->sequences || width > NARROW || shape->keys != SL_F32) return;
    const size_t query = ((sequence * shape->queries + first) * heads + head) * width;
    const size_t seen = first ? shape->position + first : 0; /* keys, by the blocks before */
    const size_t key = (sequence * shape->key_rows + seen) * shape->key_stride;
    const float *const of_keys[] = {v, k};
    wanted->rows = smaller(block, shape->queries - first);
    want(wanted, 1, &o, query, heads * width, width);
    if (seen + wanted->rows <= shape->key_rows)
        want(wanted, 2, of_keys, key + sl_attention_key_head(shape, head) * width, shape->key_stride, width);
    want(wanted, 1, &q, query, heads * width, width);
}

/* ---- gradients of scores, which lie [queries, keys], BLOCK apart from one query to the next ---- */

/* What queries need of forward: their rows' logsum, and delta, which is o . d_o. */
struct row_sums {
    const float *logsum, *delta;
};

/* p = 2^(scores - logsum), ds = p (dp - delta) scale, both 0 where a query does not see the key; scores become p, dp
 * becomes ds. */
SL_INLINE void score_gradients_of(const struct sight *sight, const size_t block, size_t query, size_t keys,
                                  const bool hidden, float logsum, float delta, float scale, float *scores, float *dp) {
    const int32_t seen = (int32_t)((int64_t)query - sight->ahead); /* the last key that is */
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

/* delta of a head's queries FIRST to QUERIES, whose rows begin AT elements behind O and D_O. HALF: o is bf16. */
SL_INLINE void make_deltas(size_t first, size_t queries, size_t width, size_t stride, bool half, const void *o,
                           const float *d_o, size_t at, float *delta) {
    EACH_TILE()
    for (size_t i = first; i < queries; i++) {
        const size_t row = at + i * (stride + nothing());
        delta[i] = half ? dot(width, (const uint16_t *)o + row, true, d_o + row)
                        : dot(width, (const float *)o + row, false, d_o + row);
    }
}

/* SIGHT is the thread's own, here and below: on GPUs thread 0 may make the next one that threads share meanwhile, for
 * which no thread waits behind the last product.
 *
 * dk [keys, x's columns] (+)= ds [queries, keys]^T x */
SL_INLINE void add_to_keys(const struct sight sight, const size_t block, const float *ds, struct rows x,
                           bool accumulate, float *dk, size_t stride, struct wanted *wanted) {
    for (size_t first = 0; x.cols && first < sight.keys;) {
        const struct strip s = strip_of_keys(&sight, first);
        multiply((struct product){
            s.count,
            x.cols,
            accumulate,
            dk + first * stride,
            stride,
            {{s.end - s.from, ds + s.from * block + first, 1, block, x.at + s.from * x.stride, x.stride}},
            .wanted = wanted});
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
                                  .wanted = wanted});
        first += s.count;
    }
}

#endif
