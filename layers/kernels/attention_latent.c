/* attention_latent.c - attention over cached latents, built once per CPU level, or for devices.
 *
 * The build defines SL_LATENT_KERNELS, the table's name, and lets the compiler fuse a * b + c.
 *
 * A query goes through blocks of rows of the cache. Its scores lie [keys, heads]: heads are the lanes of vectors, so
 * that an element of a row is multiplied for all heads at once. Where heads fill half a vector, or a quarter, so many
 * neighbouring elements go together. On NVIDIA a team has a query, its threads the tiles. */
#include "layers/kernels/attention_latent.h"
#include "layers/kernels/tiles_internal.h"

/* KEYS: in a block; ABREAST: whose scores are computed together; MOST_PACK: neighbouring elements of a row in a vector;
 * ABREAST_VECTORS: of a row's product. */
enum { KEYS = 64, ABREAST_VECTORS = 8 };
#if defined(SL_DEVICE_CUDA)
enum { ABREAST = KEYS, MOST_PACK = 1 };
#define score_packed(...) ((void)0)
#define fetch(...) ((void)0)
#else
#include "layers/kernels/attention_latent_packed_internal.h"
#endif
static const float per_log_2 = 1.44269504f;

/* PACK: elements of a row in a vector of LANES lanes, which are the heads', times PACK. */
struct query {
    struct sl_latent_attention shape;
    size_t depth, pack, lanes; /* depth: columns of a row of the cache */
    /* Scratch. Q [depth / pack, lanes]: lane h * pack + i has head h's element i of pack. P [KEYS, lanes]: scores, then
     * 2^(score - largest). MEAN [heads, latent]: sums of latents by these. Of each lane the largest score so far, the
     * sum of 2^(score - largest), and what the last block has made of that sum's unit. */
    float *q, *p, *largest, *sum, *factor, *mean;
    float *rows; /* [KEYS, depth]: a block of the cache as floats, where it is bf16 */
};

static struct query query_of(const struct sl_latent_attention *shape) {
    struct query query = {.shape = *shape, .depth = shape->latent + shape->rope, .pack = 1};
    while (query.pack < MOST_PACK && 2 * query.pack * shape->heads <= LANES && query.depth % (2 * query.pack) == 0)
        query.pack *= 2;
    query.lanes = sl_round_up(shape->heads * query.pack, LANES);
    return query;
}

static size_t floats_of(const struct query *q) {
    const size_t rows = q->shape.cached == SL_BF16 ? KEYS * q->depth : 0;
    const size_t floats =
        q->depth / q->pack * q->lanes + (KEYS + 3) * q->lanes + q->shape.heads * q->shape.latent + rows;
    return sl_round_up(floats, SL_CACHE_LINE / sizeof(float));
}

static size_t scratch(const struct sl_latent_attention *shape) {
    const struct query query = query_of(shape);
    const size_t rows = shape->sequences * shape->queries;
    return smaller(rows, SL_ABREAST) * floats_of(&query) * sizeof(float);
}

/* ---- products ---- */

/* Where columns are left over that fill no vector, multiply_rest has room for few rows and terms. */
SL_INLINE void multiply_parts(struct product p) {
    const struct term whole = p.term[0];
    if (p.cols % LANES == 0) {
        multiply(p);
        return;
    }
    for (size_t row = 0; row < p.rows; row += REST) {
        for (size_t from = 0; from < whole.depth; from += REST) {
            const struct product part = {
                smaller(REST, p.rows - row),
                p.cols,
                p.accumulate || from > 0,
                p.c + row * p.c_row,
                p.c_row,
                {{smaller(REST, whole.depth - from), whole.a + row * whole.a_row + from * whole.a_column, whole.a_row,
                  whole.a_column, whole.b + from * whole.b_row, whole.b_row}},
                NULL};
            multiply(part);
        }
    }
}

/* Columns [FIRST, FIRST + VECTORS * LANES) of multiply_row. */
SL_INLINE void multiply_vectors_of_row(const enum sl_dtype dtype, size_t first, size_t depth, const float *x,
                                       const void *b, size_t b_row, bool accumulate, float *y, const int vectors) {
    vector sum[ABREAST_VECTORS];
    for (int v = 0; v < vectors; v++) sum[v] = (vector){0};
    for (size_t l = 0; l < depth; l++) {
        for (int v = 0; v < vectors; v++) sum[v] += x[l] * load_as(dtype, b, l * b_row + first + (size_t)(v * LANES));
    }
    for (int v = 0; v < vectors; v++) {
        float *to = y + first + v * LANES;
        if (accumulate) sum[v] += load(to);
        store(to, sum[v]);
    }
}

/* A sum waits for its last term: so as many go together as there are, up to ABREAST_VECTORS. */
SL_INLINE void multiply_row_as(const enum sl_dtype dtype, size_t cols, size_t depth, const float *x, const void *b,
                               size_t b_row, bool accumulate, float *y) {
    const size_t wide = ABREAST_VECTORS * LANES;
    EACH_TILE()
    for (size_t c = 0; c < cols; c += wide) {
        const size_t end = smaller(c + wide, cols);
        size_t j = c;
#define SL_VECTORS_ABREAST(vectors)                                                                                    \
    for (; j + (vectors) * LANES <= end; j += (vectors) * LANES)                                                       \
    multiply_vectors_of_row(dtype, j, depth, x, b, b_row, accumulate, y, vectors)
        SL_VECTORS_ABREAST(ABREAST_VECTORS);
        SL_VECTORS_ABREAST(ABREAST_VECTORS / 2);
        SL_VECTORS_ABREAST(ABREAST_VECTORS / 4);
        SL_VECTORS_ABREAST(1);
#undef SL_VECTORS_ABREAST
        for (; j < end; j++) {
            float sum = 0.0f;
            for (size_t l = 0; l < depth; l++) sum += x[l] * sl_load_float(dtype, b, l * b_row + j);
            y[j] = accumulate ? sum + y[j] : sum;
        }
    }
}

/* y [1, cols] (+)= x [1, depth] b [depth, cols], which begins at element FIRST of the table. */
SL_INLINE void multiply_row(const struct query *query, size_t cols, size_t depth, const float *x, const void *table,
                            size_t first, size_t b_row, bool accumulate, float *y) {
    if (query->shape.cached == SL_BF16)
        multiply_row_as(SL_BF16, cols, depth, x, (const uint16_t *)table + first, b_row, accumulate, y);
    else if (cols % LANES == 0)
        multiply_row_as(SL_F32, cols, depth, x, (const float *)table + first, b_row, accumulate, y);
    else
        multiply_parts((struct product){
            1, cols, accumulate, y, cols, {{depth, x, depth, 1, (const float *)table + first, b_row}}, NULL});
}

/* ---- scores ---- */

/* K of each head is multiplied with its query: the mean's room keeps the product. */
SL_INLINE void absorb_query(const struct query *query, const float *q, const float *q_rope, const void *table) {
    const size_t heads = query->shape.heads, width = query->shape.width, rope = query->shape.rope;
    const size_t latent = query->shape.latent, pack = query->pack, lanes = query->lanes;
    const float scale = per_log_2 / sqrtf((float)(width + rope));
    EACH_TILE()
    for (size_t lane = 0; lane < lanes; lane++) {
        for (size_t c = 0; c < query->depth / pack; c++) query->q[c * lanes + lane] = 0.0f;
    }
    for (size_t head = 0; head < heads; head++) {
        float *product = query->mean + head * latent, *to = query->q + head * pack;
        multiply_row(query, latent, width, q + head * width, table, head * width * latent, latent, false, product);
        EACH_TILE()
        for (size_t c = 0; c < latent; c++) to[c / pack * lanes + c % pack] = scale * product[c];
        for (size_t c = latent; c < query->depth; c++)
            to[c / pack * lanes + c % pack] = scale * q_rope[head * rope + c - latent];
    }
}

/* p [count, lanes] of rows of the cache; all lanes of a head have its score. */
SL_INLINE void score(const struct query *query, const float *rows, size_t count, float *p) {
    const size_t depth = query->depth, lanes = query->lanes;
    if (query->pack == 2)
        score_packed(query->q, depth, rows, count, 2, p);
    else if (query->pack == 4)
        score_packed(query->q, depth, rows, count, 4, p);
    else
        multiply((struct product){count, lanes, false, p, lanes, {{depth, rows, depth, 1, query->q, lanes}}, NULL});
}

/* The rows of a block from KEY on, as floats. */
SL_INLINE const float *block_of(const struct query *query, const void *cache, size_t key, size_t keys) {
    const size_t depth = query->depth;
    if (query->shape.cached != SL_BF16) return (const float *)cache + key * depth;
    widen_rows(keys, depth, (const uint16_t *)cache + key * depth, depth, query->rows);
    return query->rows;
}

/* Of a block of ROWS; meanwhile the next block is fetched, which begins at row NEXT of the cache. */
SL_INLINE void make_scores(const struct query *query, const float *rows, size_t keys, const void *cache, size_t next) {
    const size_t depth = query->depth, bytes = depth * (query->shape.cached == SL_BF16 ? 2 : sizeof *rows);
    for (size_t key = 0; key < keys; key += ABREAST) {
        fetch((const char *)cache + (next + key) * bytes, ABREAST * bytes);
        score(query, rows + key * depth, smaller(ABREAST, keys - key), query->p + key * query->lanes);
    }
}

/* Scores become 2^(score - largest). A column of LANES lanes from GROUP on. */
SL_INLINE void exponentials_of(const struct query *query, size_t group, size_t keys) {
    float *largest = query->largest + group, *sum = query->sum + group, *factor = query->factor + group, high[LANES];
    float *column = query->p + group, total[LANES];
    for (int l = 0; l < LANES; l++) high[l] = largest[l];
    for (size_t key = 0; key < keys; key++) {
        const float *p = column + key * query->lanes;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) high[l] = p[l] > high[l] ? p[l] : high[l];
    }
    SL_IN_BLOCK()
    for (int l = 0; l < LANES; l++) {
        factor[l] = sl_exp2(largest[l] - high[l]);
        largest[l] = high[l];
        total[l] = sum[l] * factor[l];
    }
    for (size_t key = 0; key < keys; key++) {
        float *p = column + key * query->lanes;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) {
            const float e = sl_exp2(p[l] - high[l]);
            p[l] = e;
            total[l] += e;
        }
    }
    for (int l = 0; l < LANES; l++) sum[l] = total[l];
}

/* ---- a query ---- */

SL_INLINE void begin(const struct query *query) {
    EACH_TILE()
    for (size_t lane = 0; lane < query->lanes; lane++) {
        query->largest[lane] = -INFINITY;
        query->sum[lane] = 0.0f;
    }
}

/* Each head's sum of latents is multiplied by a factor that its lanes have, or divided. */
SL_INLINE void scale_means(const struct query *query, const float *by, const bool divide) {
    const size_t latent = query->shape.latent;
    EACH_TILE()
    for (size_t head = 0; head < query->shape.heads; head++) {
        const float given = by[head * query->pack], factor = divide ? 1.0f / given : given;
        float *mean = query->mean + head * latent;
        if (factor == 1.0f) continue;
        SL_IN_BLOCK()
        for (size_t c = 0; c < latent; c++) mean[c] *= factor;
    }
}

/* Over the first SEEN rows of the cache. */
SL_INLINE void attend(const struct query *query, size_t seen, const void *cache) {
    const size_t heads = query->shape.heads, latent = query->shape.latent, depth = query->depth;
    begin(query);
    for (size_t from = 0; from < seen; from += KEYS) {
        const size_t keys = smaller(KEYS, seen - from);
        const float *rows = block_of(query, cache, from, keys);
        make_scores(query, rows, keys, cache, from + KEYS);
        EACH_TILE()
        for (size_t group = 0; group < query->lanes; group += LANES) exponentials_of(query, group, keys);
        if (from) scale_means(query, query->factor, false);
        multiply_parts((struct product){heads,
                                        latent,
                                        from > 0,
                                        query->mean,
                                        latent,
                                        {{keys, query->p, query->pack, query->lanes, rows, depth}},
                                        NULL});
    }
    scale_means(query, query->sum, true);
}

/* o = bias + the means, each multiplied with its head's V. */
SL_INLINE void expand_means(const struct query *query, const void *table, const float *bias, float *o) {
    const size_t heads = query->shape.heads, width = query->shape.width, latent = query->shape.latent;
    const size_t values = latent * heads * width; /* they lie behind the keys */
    EACH_TILE()
    for (size_t c = 0; c < heads * width; c++) o[c] = bias[c];
    for (size_t head = 0; head < heads; head++)
        multiply_row(query, width, latent, query->mean + head * latent, table, values + head * width, heads * width,
                     true, o + head * width);
}

static void forward(const struct sl_latent_attention *shape, const float *q, const float *q_rope, const void *cache,
                    const void *table, const float *bias, float *o, void *scratch) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t latent = shape->latent, rows = sequences * queries;
    const enum sl_dtype cached = shape->cached;
    float *room = scratch;
    for (size_t first = 0; first < rows; first += SL_ABREAST) {
        const size_t count = smaller(SL_ABREAST, rows - first);
        SL_ROWS(is_device_ptr(q, q_rope, cache, table, bias, o, room))
        for (size_t slot = 0; slot < count; slot++) {
            const size_t row = first + slot, seen = position + row % queries + 1;
            const struct sl_latent_attention all = {sequences, queries, position, key_rows, heads,
                                                    width,     rope,    latent,   cached};
            struct query query = query_of(&all);
            query.q = room + slot * floats_of(&query);
            query.p = query.q + query.depth / query.pack * query.lanes;
            query.largest = query.p + KEYS * query.lanes;
            query.sum = query.largest + query.lanes;
            query.factor = query.sum + query.lanes;
            query.mean = query.factor + query.lanes;
            query.rows = query.mean + heads * latent;
            const size_t first = row / queries * key_rows * query.depth;
            absorb_query(&query, q + row * (heads * width), rope ? q_rope + row * (heads * rope) : q, table);
            attend(&query, seen,
                   cached == SL_BF16 ? (const void *)((const uint16_t *)cache + first)
                                     : (const void *)((const float *)cache + first));
            expand_means(&query, table, bias, o + row * (heads * width));
        }
    }
}

/* K transposed, [columns, latent]; then V, [latent, columns]. */
static void absorb(size_t latent, size_t columns, const float *kernel, enum sl_dtype dtype, void *table) {
    const size_t values = columns * latent;
    SL_ROWS(is_device_ptr(kernel, table))
    for (size_t l = 0; l < latent; l++) {
        const float *row = kernel + l * (2 * columns);
        SL_LANES()
        for (size_t c = 0; c < columns; c++) {
            sl_store_float(dtype, table, c * latent + l, row[c]);
            sl_store_float(dtype, table, values + l * columns + c, row[columns + c]);
        }
    }
}

const struct sl_latent_kernels SL_LATENT_KERNELS = {.absorb = absorb, .scratch = scratch, .forward = forward};
