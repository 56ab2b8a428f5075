/* attention_decode.c - causal attention of few queries, as where text is generated; built once per CPU level, or for
 * devices.
 *
 * The build defines SL_ATTENTION_DECODE, the function's name, and lets the compiler fuse a * b + c.
 *
 * The time is that of reading the keys and values once. So a query's heads go together through blocks of keys: their
 * rows are read from their beginnings to their ends, which is how a CPU fetches ahead by itself. A head's bits do not
 * depend on the others. On NVIDIA a team has one head, its threads the keys, then the columns. */
#include "layers/kernels/attention.h"
#include "layers/kernels/vectors_internal.h"
#include "spmd/base/memory.h"
#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

/* HEADS: that go together; KEYS: in a block. */
#if defined(SL_DEVICE_CUDA)
#define EACH_PAIR() SL_PRAGMA(omp parallel for collapse(2))
enum { HEADS = 1, KEYS = 32, STEP = KEYS };
#else
#define EACH_PAIR()
enum { HEADS = 16, KEYS = 64, STEP = 8 };
#endif
enum { QUAD = 4 }; /* keys whose scores are taken together */

SL_INLINE size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Some heads of one query: its row begins with the first of them, and so do those of keys and values. */
struct query {
    size_t heads, width, rope, key_stride;
    size_t seen; /* keys */
    const float *q, *q_rope, *k, *v, *k_rope;
    float scale;
};

/* Of each head, while blocks of keys pass: the largest score so far, the sum of exp(score - largest), and what the last
 * block has made of that sum's unit. */
struct softmax {
    float largest[HEADS], sum[HEADS], factor[HEADS];
    _Alignas(SL_CACHE_LINE) float p[HEADS][KEYS]; /* the block's scores, then exp(score - largest) */
};

/* ---- scores ---- */

/* The rows of four keys from KEY on; behind the last one that is seen, that one's again. */
SL_INLINE void find_rows(const struct query *query, size_t key, size_t stride, const float *first,
                         const float *row[QUAD]) {
    for (size_t i = 0; i < QUAD; i++) row[i] = first + smaller(key + i, query->seen - 1) * stride;
}

/* Adds to SUM, lane by lane, and to REST what fills no vector. */
SL_INLINE void add_products(size_t cols, const float *x, const float *const row[QUAD], vector sum[QUAD], four *rest) {
    size_t c = 0;
    for (; c + LANES <= cols; c += LANES) {
        for (int i = 0; i < QUAD; i++) sum[i] += load(x + c) * load(row[i] + c);
    }
    for (; c < cols; c++) {
        for (int i = 0; i < QUAD; i++) (*rest)[i] += x[c] * row[i][c];
    }
}

SL_INLINE four fold(vector x) {
    float lane[LANES < 4 ? 4 : LANES] = {0};
    store(lane, x);
    four sum = *(const four *)(const void *)lane;
    for (int l = 4; l < LANES; l += 4) sum += *(const four *)(const void *)(lane + l);
    return sum;
}

/* The sums of the lanes of four vectors. */
SL_INLINE four sum_lanes(const vector x[QUAD]) {
    const four a = fold(x[0]), b = fold(x[1]), c = fold(x[2]), d = fold(x[3]);
    const four ab = mix_low(a, b) + mix_high(a, b), cd = mix_low(c, d) + mix_high(c, d); /* a b a b, c d c d */
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* Of a block of keys from FROM on; -infinity behind the last one that is seen. */
SL_INLINE void make_scores(const struct query *query, size_t from, struct softmax *s) {
    const size_t heads = query->heads, width = query->width, rope = query->rope;
    EACH_PAIR()
    for (size_t key = 0; key < KEYS; key += QUAD) {
        for (size_t head = 0; head < heads; head++) {
            const float *row[QUAD];
            vector sum[QUAD] = {{0}};
            four rest = {0};
            if (from + key < query->seen) {
                find_rows(query, from + key, query->key_stride, query->k + head * width, row);
                add_products(width, query->q + head * width, row, sum, &rest);
                find_rows(query, from + key, rope, query->k_rope, row);
                add_products(rope, query->q_rope + head * rope, row, sum, &rest);
            }
            const four score = query->scale * (sum_lanes(sum) + rest);
            for (size_t i = 0; i < QUAD; i++) s->p[head][key + i] = from + key + i < query->seen ? score[i] : -INFINITY;
        }
    }
}

SL_INLINE void exponentials(size_t heads, struct softmax *s) {
    for (size_t head = 0; head < heads; head++) {
        float *p = s->p[head], high = s->largest[head], total = 0.0f;
        SL_LANES(reduction(max : high))
        for (int i = 0; i < KEYS; i++) high = p[i] > high ? p[i] : high;
        SL_LANES(reduction(+ : total))
        for (int i = 0; i < KEYS; i++) {
            p[i] = sl_exp(p[i] - high);
            total += p[i];
        }
        s->factor[head] = sl_exp(s->largest[head] - high);
        s->sum[head] = s->sum[head] * s->factor[head] + total;
        s->largest[head] = high;
    }
}

/* ---- values ---- */

/* o = o factor + sum of p v over a block of keys from FROM on; p is 0 behind the last one that is seen. */
SL_INLINE void add_values(const struct query *query, size_t from, const struct softmax *s, float *o) {
    const size_t heads = query->heads, width = query->width, stride = query->key_stride;
    const size_t keys = smaller(KEYS, query->seen - from);
    for (size_t key = 0; key < keys; key += STEP) {
        const float *row[STEP];
        for (size_t i = 0; i < STEP; i++) row[i] = query->v + smaller(from + key + i, query->seen - 1) * stride;
        EACH_PAIR()
        for (size_t head = 0; head < heads; head++) {
            for (size_t c = 0; c < width; c += LANES) {
                const float *p = s->p[head] + key, factor = key ? 1.0f : s->factor[head];
                const size_t at = head * width + c;
                if (c + LANES <= width) {
                    vector sum = from + key ? factor * load(o + at) : (vector){0};
                    for (int i = 0; i < STEP; i++) sum += p[i] * load(row[i] + at);
                    store(o + at, sum);
                } else {
                    for (size_t r = at; r < (head + 1) * width; r++) {
                        float sum = from + key ? factor * o[r] : 0.0f;
                        for (int i = 0; i < STEP; i++) sum += p[i] * row[i][r];
                        o[r] = sum;
                    }
                }
            }
        }
    }
}

/* ---- a query ---- */

/* LOGSUM_STRIDE: from one head's to the next's. */
SL_INLINE void attend(const struct query *query, float *o, float *logsum, size_t logsum_stride) {
    const size_t heads = query->heads, width = query->width;
    struct softmax s;
    for (size_t head = 0; head < heads; head++) {
        s.largest[head] = -INFINITY;
        s.sum[head] = 0.0f;
    }
    for (size_t from = 0; from < query->seen; from += KEYS) {
        make_scores(query, from, &s);
        exponentials(heads, &s);
        add_values(query, from, &s, o);
    }
    for (size_t head = 0; head < heads; head++) {
        const float factor = 1.0f / s.sum[head];
        SL_LANES()
        for (size_t c = 0; c < width; c++) o[head * width + c] *= factor;
        logsum[head * logsum_stride] = s.largest[head] + sl_log(s.sum[head]);
    }
}

void SL_ATTENTION_DECODE(const struct sl_attention *shape, const float *q, const float *q_rope, const float *k,
                         const float *v, const float *k_rope, float *o, float *logsum) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t key_stride = shape->key_stride, rows = sequences * queries, groups = (heads + HEADS - 1) / HEADS;
    SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum))
    for (size_t unit = 0; unit < rows * groups; unit++) {
        const size_t row = unit / groups, first = unit % groups * HEADS, key = row / queries * key_rows;
        const struct query query = {.heads = smaller(HEADS, heads - first),
                                    .width = width,
                                    .rope = rope,
                                    .key_stride = key_stride,
                                    .seen = position + row % queries + 1,
                                    .q = q + (row * heads + first) * width,
                                    .q_rope = rope ? q_rope + (row * heads + first) * rope : q,
                                    .k = k + key * key_stride + first * width,
                                    .v = v + key * key_stride + first * width,
                                    .k_rope = rope ? k_rope + key * rope : k,
                                    .scale = 1.0f / sqrtf((float)(width + rope))};
        attend(&query, o + (row * heads + first) * width, logsum + first * rows + row, rows);
    }
}
