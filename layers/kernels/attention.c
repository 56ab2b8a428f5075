/* attention.c - causal attention in blocks of queries and keys, built once per CPU level, or for devices.
 *
 * The build defines SL_ATTENTION_KERNELS, the table's name, and lets the compiler fuse a * b + c.
 *
 * A block's scores lie [keys, queries]: queries are the lanes of vectors, so that maxima and sums over keys are taken
 * lane by lane, and the block's queries are transposed once for all blocks of keys. All products of blocks are one
 * function's, made of tiles whose sums stay in registers. On NVIDIA a team has a block of queries (backward: a head),
 * its threads the tiles. */
#include "layers/kernels/attention.h"
#include "layers/kernels/rows/vectors_internal.h"
#include "spmd/base/memory.h"
#include "spmd/device/offload.h"
#include "spmd/base/vector_math.h"

/* PAIR: vectors of columns of a tile; KEYS: in a block; DEPTH: columns of queries that stay transposed, where there are
 * more they are transposed again for every block of keys. */
#if defined(SL_DEVICE_CUDA)
#define EACH_TILE(...) SL_PRAGMA(omp parallel for __VA_ARGS__)
enum { PAIR = 1, KEYS = 32, DEPTH = 32 }; /* what is local shares a team's 48 KB */
#else
#define EACH_TILE(...)
enum { PAIR = 2, KEYS = 64, DEPTH = 256 };
#endif
enum {
    QUERIES = 32, /* in a block */
    FEW = 4,      /* queries that attention_decode.c takes */
};

SL_INLINE size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---- products of blocks ---- */

/* c [rows, cols] (+)= a [rows, depth] b [depth, cols]. Rows of b and c are contiguous. */
struct product {
    size_t rows, cols, depth;
    const float *a;
    size_t a_row, a_column; /* from one row, or column, to the next */
    const float *b;
    size_t b_row;
    bool accumulate;
    float *c;
    size_t c_row;
};

SL_INLINE void tile(const struct product *p, size_t row, size_t column, const int rows, const int vectors) {
    const size_t a_row = p->a_row, a_column = p->a_column, b_row = p->b_row, c_row = p->c_row;
    const float *a = p->a + row * a_row, *b = p->b + column;
    float *c = p->c + row * c_row + column;
    vector sum[TILE][PAIR];
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = (vector){0};
    }
    for (size_t l = p->depth; l > 0; l--, a += a_column, b += b_row) {
        vector w[PAIR];
        for (int v = 0; v < vectors; v++) w[v] = load(b + v * LANES);
        for (int i = 0; i < rows; i++) {
            const vector x = spread(a[(size_t)i * a_row]);
            for (int v = 0; v < vectors; v++) sum[i][v] += x * w[v];
        }
    }
    for (int i = 0; i < rows; i++, c += c_row) {
        for (int v = 0; v < vectors; v++) {
            if (p->accumulate) sum[i][v] += load(c + v * LANES);
            store(c + v * LANES, sum[i][v]);
        }
    }
}

SL_INLINE void tiles(const struct product *p, size_t row, size_t column, const int vectors) {
    if (row + TILE <= p->rows)
        tile(p, row, column, TILE, vectors);
    else
        for (; row < p->rows; row++) tile(p, row, column, 1, vectors);
}

/* COLS: a multiple of LANES. */
SL_INLINE void multiply_vectors(const struct product *p, size_t cols) {
    const size_t across = (cols + PAIR * LANES - 1) / (PAIR * LANES), down = (p->rows + TILE - 1) / TILE;
    EACH_TILE()
    for (size_t t = 0; t < across * down; t++) {
        const size_t row = t / across * TILE, column = t % across * (PAIR * LANES);
        if (column + PAIR * LANES <= cols)
            tiles(p, row, column, PAIR);
        else
            tiles(p, row, column, 1);
    }
}

/* Columns that fill no vector are multiplied in a copy that does. There rows and depth are a block's. */
SL_INLINE void multiply_rest(const struct product *p, size_t column) {
    _Alignas(SL_CACHE_LINE) float b[KEYS * LANES], c[KEYS * LANES];
    const size_t rest = p->cols - column;
    for (size_t l = 0; l < p->depth; l++) {
        for (size_t j = 0; j < LANES; j++) b[l * LANES + j] = j < rest ? p->b[l * p->b_row + column + j] : 0.0f;
    }
    const struct product copy = {p->rows, LANES, p->depth, p->a, p->a_row, p->a_column, b, LANES, false, c, LANES};
    multiply_vectors(&copy, LANES);
    for (size_t i = 0; i < p->rows; i++) {
        float *to = p->c + i * p->c_row + column;
        for (size_t j = 0; j < rest; j++) to[j] = (p->accumulate ? to[j] : 0.0f) + c[i * LANES + j];
    }
}

SL_INLINE void multiply(struct product p) {
    const size_t whole = p.cols / LANES * LANES;
    if (whole) multiply_vectors(&p, whole);
    if (whole < p.cols) multiply_rest(&p, whole);
}

/* ---- what a block is made of ---- */

struct rows { /* of a matrix, from some row on */
    const float *at;
    size_t stride, cols;
};

SL_INLINE struct rows from_row(struct rows rows, size_t row) {
    rows.at += row * rows.stride;
    return rows;
}

/* One head of one sequence. */
struct head {
    struct rows q, q_rope, k, v, k_rope;
    size_t position;
    float scale;
};

SL_INLINE struct head head_of(const struct sl_attention *shape, size_t number, const float *q, const float *q_rope,
                              const float *k, const float *v, const float *k_rope) {
    const size_t width = shape->width, rope = shape->rope, stride = shape->key_stride;
    const size_t sequence = number / shape->heads, head = number % shape->heads;
    const size_t query = sequence * shape->queries, key = sequence * shape->key_rows;
    return (struct head){
        .q = {q + query * (shape->heads * width) + head * width, shape->heads * width, width},
        .q_rope = {rope ? q_rope + query * (shape->heads * rope) + head * rope : q, shape->heads * rope, rope},
        .k = {k + key * stride + head * width, stride, width},
        .v = {v + key * stride + head * width, stride, width},
        .k_rope = {rope ? k_rope + key * rope : k, rope, rope},
        .position = shape->position,
        .scale = 1.0f / sqrtf((float)(width + rope)),
    };
}

/* Four columns of four rows. */
SL_INLINE void transpose_four(const float *x, size_t stride, float factor, float *y) {
    four row[4];
    for (size_t i = 0; i < 4; i++) row[i] = factor * *(const four *)(const void *)(x + i * stride);
    const four low01 = mix_low(row[0], row[1]);
    const four high01 = mix_high(row[0], row[1]);
    const four low23 = mix_low(row[2], row[3]);
    const four high23 = mix_high(row[2], row[3]);
    *(four *)(void *)y = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    *(four *)(void *)(y + QUERIES) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    *(four *)(void *)(y + 2 * QUERIES) = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    *(four *)(void *)(y + 3 * QUERIES) = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/* Columns FROM on of a block of queries, transposed [cols, QUERIES]; a vector's last lanes may be no queries. */
SL_INLINE void transpose(size_t queries, struct rows q, size_t from, size_t cols, float factor, float *turned) {
    const size_t lanes = sl_round_up(queries, LANES);
    EACH_TILE()
    for (size_t c = 0; c < cols; c += 4) {
        const float *x = q.at + from + c;
        float *y = turned + c * QUERIES;
        const size_t whole = c + 4 <= cols ? queries / 4 * 4 : 0;
        for (size_t i = 0; i < whole; i += 4) transpose_four(x + i * q.stride, q.stride, factor, y + i);
        for (size_t j = 0; j < smaller(4, cols - c); j++) {
            for (size_t i = whole; i < lanes; i++)
                y[j * QUERIES + i] = i < queries ? factor * x[i * q.stride + j] : 0.0f;
        }
    }
}

/* scores [keys, queries] (+)= k q^T factor. TURNED [DEPTH, QUERIES] keeps the transposed queries; FRESH: it does not
 * hold these yet. */
SL_INLINE void multiply_transposed(size_t keys, struct rows k, size_t queries, struct rows q, float factor, bool fresh,
                                   float *turned, bool accumulate, float *scores) {
    const size_t lanes = sl_round_up(queries, LANES);
    for (size_t from = 0; from < k.cols; from += DEPTH) {
        const size_t cols = smaller(DEPTH, k.cols - from);
        if (fresh || k.cols > DEPTH) transpose(queries, q, from, cols, factor, turned);
        multiply((struct product){keys, lanes, cols, k.at + from, k.stride, 1, turned, QUERIES, from || accumulate,
                                  scores, QUERIES});
    }
}

/* A block of queries and what is kept of them while blocks of keys pass. */
struct block {
    _Alignas(SL_CACHE_LINE) float q[DEPTH * QUERIES], q_rope[DEPTH * QUERIES]; /* transposed, scaled */
    _Alignas(SL_CACHE_LINE) float scores[KEYS * QUERIES];
};

SL_INLINE void make_scores(const struct head *h, size_t first, size_t queries, size_t from, size_t keys,
                           struct block *b) {
    multiply_transposed(keys, from_row(h->k, from), queries, from_row(h->q, first), h->scale, from == 0, b->q, false,
                        b->scores);
    multiply_transposed(keys, from_row(h->k_rope, from), queries, from_row(h->q_rope, first), h->scale, from == 0,
                        b->q_rope, true, b->scores);
}

/* ---- forward: a block of queries ---- */

/* For every query the largest score so far, the sum of exp(score - largest), and what the last block of keys has made
 * of these sums' unit. */
struct softmax {
    _Alignas(SL_CACHE_LINE) float largest[QUERIES], sum[QUERIES], factor[QUERIES];
};

/* Scores of a block of KEYS become exp(score - largest), 0 where lane i of these queries does not see key j, which is
 * where i < ahead + j. */
SL_INLINE void exponentials(struct softmax *s, size_t queries, size_t keys, int32_t ahead, float *scores) {
    EACH_TILE()
    for (size_t group = 0; group < queries; group += LANES) {
        float *column = scores + group, *largest = s->largest + group, *sum = s->sum + group;
        float *factor = s->factor + group, high[LANES];
        for (int l = 0; l < LANES; l++) high[l] = largest[l];
        for (size_t key = 0; key < keys; key++) {
            const int32_t hidden = ahead + (int32_t)key - (int32_t)group;
            float *row = column + key * QUERIES;
            SL_IN_BLOCK()
            for (int l = 0; l < LANES; l++) {
                const float score = l < hidden ? -INFINITY : row[l];
                row[l] = score;
                high[l] = score > high[l] ? score : high[l];
            }
        }
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) {
            factor[l] = sl_exp(largest[l] - high[l]);
            largest[l] = high[l];
            sum[l] *= factor[l];
        }
        for (size_t key = 0; key < keys; key++) {
            float *row = column + key * QUERIES;
            SL_IN_BLOCK()
            for (int l = 0; l < LANES; l++) {
                const float e = sl_exp(row[l] - high[l]);
                row[l] = e;
                sum[l] += e;
            }
        }
    }
}

SL_INLINE void scale_rows(size_t rows, const float *factor, size_t cols, size_t stride, float *o) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        const float by = factor[i];
        if (by == 1.0f) continue;
        SL_IN_BLOCK()
        for (size_t c = 0; c < cols; c++) o[i * stride + c] *= by;
    }
}

/* O and LOGSUM begin at the block's first query. */
SL_INLINE void forward_block(const struct head *h, size_t first, size_t queries, float *o, float *logsum) {
    struct block b;
    struct softmax s;
    const size_t width = h->v.cols, stride = h->q.stride, seen = h->position + first + queries;
    for (size_t i = 0; i < QUERIES; i++) {
        s.largest[i] = -INFINITY;
        s.sum[i] = 0.0f;
    }
    for (size_t from = 0; from < seen; from += KEYS) {
        const size_t keys = smaller(KEYS, seen - from);
        make_scores(h, first, queries, from, keys, &b);
        exponentials(&s, queries, keys, (int32_t)((int64_t)from - (int64_t)(h->position + first)), b.scores);
        if (from) scale_rows(queries, s.factor, width, stride, o);
        multiply((struct product){queries, width, keys, b.scores, 1, QUERIES, h->v.at + from * h->v.stride, h->v.stride,
                                  from > 0, o, stride});
    }
    for (size_t i = 0; i < queries; i++) {
        s.factor[i] = 1.0f / s.sum[i];
        logsum[i] = s.largest[i] + sl_log(s.sum[i]);
    }
    scale_rows(queries, s.factor, width, stride, o);
}

static void forward(const struct sl_attention *shape, const float *q, const float *q_rope, const float *k,
                    const float *v, const float *k_rope, float *o, float *logsum) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t key_stride = shape->key_stride;
    const size_t blocks = (queries + QUERIES - 1) / QUERIES;
    if (queries <= FEW) {
        SL_ATTENTION_DECODE(shape, q, q_rope, k, v, k_rope, o, logsum);
        return;
    }
    SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum))
    for (size_t unit = 0; unit < sequences * heads * blocks; unit++) {
        const struct sl_attention all = {.sequences = sequences,
                                         .queries = queries,
                                         .position = position,
                                         .key_rows = key_rows,
                                         .heads = heads,
                                         .width = width,
                                         .rope = rope,
                                         .key_stride = key_stride};
        const size_t number = unit / blocks, first = unit % blocks * QUERIES;
        const size_t row = number / heads * queries + first, head = number % heads;
        const struct head h = head_of(&all, number, q, q_rope, k, v, k_rope);
        float *to = o + row * (heads * width) + head * width, *logsum_to = logsum + head * (sequences * queries) + row;
        forward_block(&h, first, smaller(QUERIES, queries - first), to, logsum_to);
    }
}

/* ---- backward: a head ---- */

/* Of one head, beginning where its operands do; dk_rope's rows are its own. */
struct gradients {
    float *dq, *dq_rope, *dk, *dv, *dk_rope;
};

SL_INLINE void zero_rows(size_t rows, size_t cols, size_t stride, float *x) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        for (size_t c = 0; c < cols; c++) x[i * stride + c] = 0.0f;
    }
}

/* p = exp(scores - logsum), ds = p (dp - delta) scale, both 0 where a lane does not see the key (see exponentials); the
 * scores become p, dp becomes ds. */
SL_INLINE void score_gradients(size_t queries, size_t keys, int32_t ahead, const float *logsum, const float *delta,
                               float scale, float *scores, float *dp) {
    EACH_TILE(collapse(2))
    for (size_t key = 0; key < keys; key++) {
        for (size_t group = 0; group < queries; group += LANES) {
            const int32_t hidden = ahead + (int32_t)key - (int32_t)group;
            float *p = scores + key * QUERIES + group, *ds = dp + key * QUERIES + group;
            SL_IN_BLOCK()
            for (int l = 0; l < LANES; l++) {
                const float e = sl_exp(p[l] - logsum[group + (size_t)l]);
                p[l] = l < hidden ? 0.0f : e;
                ds[l] = p[l] * (ds[l] - delta[group + (size_t)l]) * scale;
            }
        }
    }
}

SL_INLINE float dot(size_t n, const float *x, const float *y) {
    vector sum = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += load(x + i) * load(y + i);
    float lane[LANES], rest = 0.0f;
    store(lane, sum);
    for (; i < n; i++) rest += x[i] * y[i];
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    }
    return lane[0] + rest;
}

/* Adds what FIRST and the QUERIES after it contribute, and writes their own gradients. O, D_O as q; LOGSUM [queries of
 * the head]. */
SL_INLINE void backward_block(const struct head *h, size_t first, size_t queries, struct rows o, struct rows d_o,
                              const float *logsum, const struct gradients *to) {
    struct block b;
    _Alignas(SL_CACHE_LINE) float turned[DEPTH * QUERIES], ds[KEYS * QUERIES], sums[QUERIES], delta[QUERIES];
    const size_t width = h->v.cols, rope = h->k_rope.cols, end = first + queries;
    const struct rows q = from_row(h->q, first), q_rope = from_row(h->q_rope, first), dy = from_row(d_o, first);
    float *dq = to->dq + first * q.stride, *dq_rope = to->dq_rope + first * q_rope.stride;
    EACH_TILE()
    for (size_t i = 0; i < QUERIES; i++) {
        sums[i] = i < queries ? logsum[first + i] : 0.0f;
        delta[i] = i < queries ? dot(width, from_row(o, first + i).at, dy.at + i * dy.stride) : 0.0f;
    }
    for (size_t from = 0; from < end; from += KEYS) {
        const size_t keys = smaller(KEYS, end - from);
        const struct rows k = from_row(h->k, from), v = from_row(h->v, from), k_rope = from_row(h->k_rope, from);
        float *dk = to->dk + from * k.stride, *dv = to->dv + from * v.stride, *dk_rope = to->dk_rope + from * rope;
        make_scores(h, first, queries, from, keys, &b);
        multiply_transposed(keys, v, queries, dy, 1.0f, from == 0, turned, false, ds);
        score_gradients(queries, keys, (int32_t)from - (int32_t)first, sums, delta, h->scale, b.scores, ds);
        multiply((struct product){keys, width, queries, b.scores, QUERIES, 1, dy.at, dy.stride, true, dv, v.stride});
        multiply((struct product){keys, width, queries, ds, QUERIES, 1, q.at, q.stride, true, dk, k.stride});
        multiply((struct product){keys, rope, queries, ds, QUERIES, 1, q_rope.at, q_rope.stride, true, dk_rope, rope});
        multiply((struct product){queries, width, keys, ds, 1, QUERIES, k.at, k.stride, from > 0, dq, q.stride});
        multiply(
            (struct product){queries, rope, keys, ds, 1, QUERIES, k_rope.at, rope, from > 0, dq_rope, q_rope.stride});
    }
}

/* sums [n] of parts [heads, n] */
static void sum_heads(size_t heads, size_t n, const float *parts, float *sums) {
    SL_BLOCKS(is_device_ptr(parts, sums))
    for (size_t first = 0; first < n; first += SL_BLOCK) {
        const size_t end = smaller(first + SL_BLOCK, n);
        for (size_t head = 0; head < heads; head++) {
            const float *part = parts + head * n;
            SL_IN_BLOCK()
            for (size_t i = first; i < end; i++) sums[i] = head ? sums[i] + part[i] : part[i];
        }
    }
}

static void backward(const struct sl_attention *shape, const float *q, const float *q_rope, const float *k,
                     const float *v, const float *k_rope, const float *o, const float *logsum, const float *d_o,
                     float *dq, float *dq_rope, float *dk, float *dv, float *dk_rope, void *scratch) {
    const size_t sequences = shape->sequences, queries = shape->queries, heads = shape->heads, width = shape->width;
    const size_t rope = shape->rope, key_stride = shape->key_stride, rows = sequences * queries;
    float *parts = scratch; /* dk_rope [heads, rows, rope] */
    SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, dk, dv, parts))
    for (size_t number = 0; number < sequences * heads; number++) {
        const struct sl_attention all = {.sequences = sequences,
                                         .queries = queries,
                                         .key_rows = queries,
                                         .heads = heads,
                                         .width = width,
                                         .rope = rope,
                                         .key_stride = key_stride};
        const struct head h = head_of(&all, number, q, q_rope, k, v, k_rope);
        const size_t head = number % heads, row = number / heads * queries, part = head * rows + row;
        const size_t of_query = row * (heads * width) + head * width, of_key = row * key_stride + head * width;
        const struct rows y = {o + of_query, heads * width, width}, dy = {d_o + of_query, heads * width, width};
        const struct gradients to = {dq + of_query, rope ? dq_rope + row * (heads * rope) + head * rope : dq,
                                     dk + of_key, dv + of_key, rope ? parts + part * rope : dk};
        zero_rows(queries, width, key_stride, to.dk);
        zero_rows(queries, width, key_stride, to.dv);
        zero_rows(queries, rope, rope, to.dk_rope);
        for (size_t first = 0; first < queries; first += QUERIES)
            backward_block(&h, first, smaller(QUERIES, queries - first), y, dy, logsum + part, &to);
    }
    if (rope) sum_heads(heads, rows * rope, parts, dk_rope);
}

const struct sl_attention_kernels SL_ATTENTION_KERNELS = {.forward = forward, .backward = backward};
