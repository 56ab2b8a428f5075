/* attention_decode.c - causal attention of few queries, for example in text generation; built once per CPU level, or
 * for devices.
 *
 * The build defines SL_ATTENTION_DECODE, the function's name, and lets the compiler fuse a * b + c.
 *
 * The time is the time to read keys and values once. So a query's heads go together through blocks of keys: rows are
 * read from their beginnings to their ends, as a CPU's own prefetcher does. A head's bits do not depend on the other
 * heads. On NVIDIA GPUs a team has one head; its threads share the keys, then the columns. If there are few queries and
 * heads, and many keys, teams share the keys of each head (attention_parts_internal.h). */
#include "layers/kernels/attention/attention.h"
#include "layers/kernels/attention/attention_parts_internal.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "layers/kernels/loops/vectors_internal.h"
#include "spmd/base/memory.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

/* HEADS: heads per pass; KEYS: keys in a block; STEP: keys per addition of values. */
#if defined(SL_DEVICE_CUDA)
#define EACH_PAIR(...) SL_PRAGMA(omp parallel for collapse(2) __VA_ARGS__)
enum { HEADS = 1, KEYS = 32, STEP = KEYS };
#if defined(__clang__) /* unrolled further, loops over columns and over keys would take more than 128 registers */
#define BY_TWO SL_PRAGMA(clang loop unroll_count(2))
#define BY_FOUR SL_PRAGMA(clang loop unroll_count(4))
#endif
static inline vector sum_lanes(const vector x[LANES]) { return x[0]; }
#define fetch_rows(...) ((void)0)
#else
#include "layers/kernels/loops/lanes_internal.h"
#define EACH_PAIR(...)
enum { HEADS = 16, KEYS = 128, STEP = 8 };
#endif
#if !defined(BY_TWO)
#define BY_TWO
#define BY_FOUR
#endif

/* Returns keys or values from element I on. Functions below are compiled for each type: callers pass a constant DTYPE.
 */
SL_INLINE const void *from_element(const enum sl_dtype dtype, const void *x, size_t i) {
    return dtype == SL_BF16 ? (const void *)((const uint16_t *)x + i) : (const void *)((const float *)x + i);
}

/* Some heads of one query. Its row begins with the first of them; so do the rows of keys and values. */
struct query {
    size_t heads, width, rope, key_stride;
    size_t group, lead; /* as in attention.h */
    size_t seen;        /* number of visible keys */
    const float *q, *q_rope;
    const void *k, *v, *k_rope; /* of the call's type */
    float scale;
};

/* Returns the number of heads, a constant if a pass has one. */
SL_INLINE size_t heads_of(const struct query *query) { return HEADS > 1 ? query->heads : 1; }

/* Returns HEAD's first column of keys and values. */
SL_INLINE size_t key_column(const struct query *query, size_t head) {
    if (HEADS == 1) return 0;
    return sl_attention_key_head(&(struct sl_attention){.group = query->group, .lead = query->lead}, head) *
           query->width;
}

#if !defined(SL_DEVICE_CUDA)
/* Prefetches rows FROM to FROM + COUNT of X, of the heads' columns. For bf16 only: a CPU prefetches along each of
 * several rows by itself, but not along all rows of a page, and a page has twice as many rows of bf16. */
SL_INLINE void fetch_rows(const enum sl_dtype dtype, const struct query *query, const void *x, size_t from,
                          size_t count) {
    const size_t columns = key_column(query, query->heads - 1) + query->width;
    if (dtype != SL_BF16) return;
    for (size_t row = from; row < smaller(from + count, query->seen); row++) {
        const uint16_t *at = (const uint16_t *)x + row * query->key_stride;
        for (size_t c = 0; c < columns; c += SL_CACHE_LINE / sizeof *at) __builtin_prefetch(at + c);
    }
}
#endif

/* For each head, over the blocks of keys so far: the largest score, the sum of exp(score - largest), and the factor by
 * which the last block has rescaled this sum. */
struct softmax {
    float largest[HEADS], sum[HEADS], factor[HEADS];
    _Alignas(SL_CACHE_LINE) float p[HEADS][KEYS]; /* the block's scores, then exp(score - largest) */
};

/* ---- scores ---- */

/* Adds products to SUM, lane by lane, and to REST for columns behind the last full vector. After COUNT rows the last
 * row is repeated. */
SL_INLINE void add_products(const enum sl_dtype dtype, size_t cols, const float *x, const void *rows, size_t stride,
                            const size_t count, vector sum[LANES], float rest[LANES]) {
    const size_t last = count - 1;
    size_t c = 0;
    BY_TWO
    for (; c + LANES <= cols; c += LANES) {
        const vector at = load(x + c);
        for (size_t i = 0; i < LANES; i++) sum[i] += at * load_as(dtype, rows, smaller(i, last) * stride + c);
    }
    for (; LANES > 1 && c < cols; c++) {
        for (size_t i = 0; i < LANES; i++) rest[i] += x[c] * sl_load_float(dtype, rows, smaller(i, last) * stride + c);
    }
}

/* scores [LANES] = scores of the COUNT keys from KEY on. */
SL_INLINE void score(const enum sl_dtype dtype, const struct query *query, size_t head, size_t key, const size_t count,
                     float *scores) {
    const size_t width = query->width, rope = query->rope, stride = query->key_stride;
    vector sum[LANES];
    float rest[LANES] = {0};
    for (int i = 0; i < LANES; i++) sum[i] = (vector){0};
    add_products(dtype, width, query->q + head * width,
                 from_element(dtype, query->k, key * stride + key_column(query, head)), stride, count, sum, rest);
    add_products(dtype, rope, query->q_rope + head * rope, from_element(dtype, query->k_rope, key * rope), rope, count,
                 sum, rest);
    store(scores, query->scale * (sum_lanes(sum) + load(rest)));
}

/* Computes the scores of a block of keys from FROM on, in whole vectors. */
SL_INLINE void make_scores(const enum sl_dtype dtype, const struct query *query, size_t from, size_t keys,
                           struct softmax *s) {
    const size_t heads = heads_of(query);
    EACH_PAIR(firstprivate(dtype)) /* a shared DTYPE would be no constant on GPUs */
    for (size_t key = 0; key < keys; key += LANES) {
        for (size_t head = 0; head < heads; head++) {
            if (head == 0) fetch_rows(dtype, query, query->k, from + key + LANES, LANES);
            if (LANES == 1 || key + LANES <= keys)
                score(dtype, query, head, from + key, LANES, s->p[head] + key);
            else
                score(dtype, query, head, from + key, keys - key, s->p[head] + key);
        }
    }
}

SL_INLINE void exponentials(size_t heads, size_t keys, bool first, struct softmax *s) {
    const size_t whole = sl_round_up(keys, LANES);
    for (size_t head = 0; head < heads; head++) {
        float *p = s->p[head], total = 0.0f;
        int32_t order = sl_order_of_float(s->largest[head]);
        SL_LANES(reduction(max : order))
        for (size_t i = 0; i < whole; i++) {
            const int32_t other = sl_order_of_float(p[i]);
            order = other > order ? other : order;
        }
        const float high = sl_float_of_order(order);
        SL_LANES()
        for (size_t i = 0; i < whole; i++) p[i] = sl_exp(p[i] - high);
        for (size_t i = keys; i < KEYS; i++) p[i] = 0.0f;
        SL_LANES(reduction(+ : total))
        for (size_t i = 0; i < KEYS; i++) total += p[i];
        s->factor[head] = first ? 0.0f : sl_exp(s->largest[head] - high);
        s->sum[head] = s->sum[head] * s->factor[head] + total;
        s->largest[head] = high;
    }
}

/* ---- values ---- */

/* Columns FIRST to END of o = o factor + sum of p v over the keys of a step. FRESH: there is no o yet. O begins at the
 * place of the values' first column. */
SL_INLINE void add_step(const enum sl_dtype dtype, size_t first, size_t end, const float *p,
                        const void *const row[STEP], bool fresh, float factor, float *o) {
    if (LANES == 1 || first + LANES <= end) {
        vector sum = {0};
        if (!fresh) sum = factor * load(o + first);
        BY_FOUR
        for (int i = 0; i < STEP; i++) sum += p[i] * load_as(dtype, row[i], first);
        store(o + first, sum);
        return;
    }
    for (size_t c = first; c < end; c++) {
        float sum = fresh ? 0.0f : factor * o[c];
        for (int i = 0; i < STEP; i++) sum += p[i] * sl_load_float(dtype, row[i], c);
        o[c] = sum;
    }
}

/* add_step for all heads and columns over a block of keys from FROM on; p is 0 after the last visible key. */
SL_INLINE void add_values(const enum sl_dtype dtype, const struct query *query, size_t from, size_t keys,
                          const struct softmax *s, float *o) {
    const size_t heads = heads_of(query), width = query->width, stride = query->key_stride;
    for (size_t key = 0; key < keys; key += STEP) {
        const void *row[STEP];
        for (size_t i = 0; i < STEP; i++)
            row[i] = from_element(dtype, query->v, smaller(from + key + i, query->seen - 1) * stride);
        fetch_rows(dtype, query, query->v, from + key + 2 * STEP, STEP);
        EACH_PAIR(firstprivate(dtype))
        for (size_t head = 0; head < heads; head++) {
            for (size_t c = 0; c < width; c += LANES) {
                const size_t column = key_column(query, head);
                add_step(dtype, column + c, column + width, s->p[head] + key, row, from + key == 0,
                         key ? 1.0f : s->factor[head], o + (head * width - column));
            }
        }
    }
}

/* ---- a query ---- */

/* LOGSUM_STRIDE: elements from one head's logsum to the next. */
SL_INLINE void attend(const enum sl_dtype dtype, const struct query *query, float *o, float *logsum,
                      size_t logsum_stride) {
    const size_t heads = heads_of(query), width = query->width;
    struct softmax s;
    for (size_t head = 0; head < heads; head++) {
        s.largest[head] = -INFINITY;
        s.sum[head] = 0.0f;
    }
    for (size_t from = 0; from < query->seen; from += KEYS) {
        const size_t keys = smaller(KEYS, query->seen - from);
        make_scores(dtype, query, from, keys, &s);
        exponentials(heads, keys, from == 0, &s);
        add_values(dtype, query, from, keys, &s, o);
    }
    for (size_t head = 0; head < heads; head++) {
        const float factor = 1.0f / s.sum[head];
        SL_LANES()
        for (size_t c = 0; c < width; c++) o[head * width + c] *= factor;
        logsum[head * logsum_stride] = s.largest[head] + sl_log(s.sum[head]);
    }
}

void SL_ATTENTION_DECODE(const struct sl_attention *shape, const float *q, const float *q_rope, const void *k,
                         const void *v, const void *k_rope, float *o, float *logsum) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t key_stride = shape->key_stride, rows = sequences * queries, parts = (heads + HEADS - 1) / HEADS;
    const size_t group = shape->group > 1 ? shape->group : 1, lead = group > 1 ? shape->lead : 0;
    const size_t window = shape->window;
    const enum sl_dtype dtype = shape->keys;
    const size_t last = smaller(position + queries, key_rows), most = window ? smaller(window, last) : last;
    const size_t keys = SL_TEAMS > 1 ? keys_of_part(most, KEYS, rows * parts, rows * heads * (width + 1)) : most;
    const size_t shares = SL_TEAMS > 1 && keys < most ? (most + keys - 1) / keys : 1, each = rows * heads;
    float *const all = shares > 1 ? sl_device.room() : o;
    float *const logsums = shares > 1 ? all + shares * each * width : logsum;
    SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, all, logsums))
    for (size_t unit = 0; unit < rows * parts * shares; unit++) {
        const size_t share = unit / (rows * parts), skipped = share * keys;
        const size_t row = unit % (rows * parts) / parts, first = unit % parts * HEADS;
        const size_t before = position + row % queries, begin = window && before >= window ? before + 1 - window : 0;
        const size_t key = row / queries * key_rows + begin + skipped; /* the first visible key */
        const size_t seen = smaller(before + 1, key_rows) - begin;
        float *to = all + (share * each + row * heads + first) * width;
        float *logsum_to = logsums + share * each + first * rows + row;
        if (shares > 1 && skipped >= seen) {
            for (size_t head = 0; head < smaller(HEADS, heads - first); head++) logsum_to[head * rows] = -INFINITY;
            continue;
        }
        const struct sl_attention shared = {.group = group, .lead = lead};
        const size_t column = sl_attention_key_head(&shared, first) * width;
        const struct query query = {.heads = smaller(HEADS, heads - first),
                                    .width = width,
                                    .rope = rope,
                                    .key_stride = key_stride,
                                    .group = group,
                                    .lead = (first + lead) % group,
                                    .seen = shares > 1 ? smaller(seen - skipped, keys) : seen,
                                    .q = q + (row * heads + first) * width,
                                    .q_rope = rope ? q_rope + (row * heads + first) * rope : q,
                                    .k = from_element(dtype, k, key * key_stride + column),
                                    .v = from_element(dtype, v, key * key_stride + column),
                                    .k_rope = rope ? from_element(dtype, k_rope, key * rope) : k,
                                    .scale = 1.0f / sqrtf((float)(width + rope))};
        if (dtype == SL_BF16)
            attend(SL_BF16, &query, to, logsum_to, rows);
        else
            attend(SL_F32, &query, to, logsum_to, rows);
    }
    if (shares > 1) merge_parts(shares, rows, heads, width, all, logsums, NULL, o, logsum);
}
