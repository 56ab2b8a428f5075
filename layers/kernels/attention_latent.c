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
 * SLOTS: queries with a scratch of their own. */
enum { KEYS = 64 };
#if defined(SL_DEVICE_CUDA)
enum { ABREAST = KEYS, MOST_PACK = 1 };
#define score_packed(...) ((void)0)
#define fetch_rows(...) ((void)0)
#else
#include "layers/kernels/attention_latent_packed_internal.h"
#endif
#if defined(SL_DEVICE_CUDA) || defined(SL_DEVICE_OFFLOAD)
enum { SLOTS = 64 };
#else
enum { SLOTS = 1 }; /* the host takes one after the other */
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
};

static struct query query_of(const struct sl_latent_attention *shape) {
    struct query query = {.shape = *shape, .depth = shape->latent + shape->rope, .pack = 1};
    while (query.pack < MOST_PACK && 2 * query.pack * shape->heads <= LANES && query.depth % (2 * query.pack) == 0)
        query.pack *= 2;
    query.lanes = sl_round_up(shape->heads * query.pack, LANES);
    return query;
}

static size_t floats_of(const struct query *q) {
    const size_t floats = q->depth / q->pack * q->lanes + (KEYS + 3) * q->lanes + q->shape.heads * q->shape.latent;
    return sl_round_up(floats, SL_CACHE_LINE / sizeof(float));
}

static size_t scratch(const struct sl_latent_attention *shape) {
    const struct query query = query_of(shape);
    const size_t rows = shape->sequences * shape->queries;
    return smaller(rows, SLOTS) * floats_of(&query) * sizeof(float);
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
                  whole.a_column, whole.b + from * whole.b_row, whole.b_row}}};
            multiply(part);
        }
    }
}

/* y [1, cols] (+)= x [1, depth] b [depth, cols] */
SL_INLINE void multiply_row(size_t cols, size_t depth, const float *x, const float *b, size_t b_row, bool accumulate,
                            float *y) {
    multiply_parts((struct product){1, cols, accumulate, y, cols, {{depth, x, depth, 1, b, b_row}}});
}

/* ---- scores ---- */

/* K of each head is multiplied with its query: the mean's room keeps the product. */
SL_INLINE void absorb_query(const struct query *query, const float *q, const float *q_rope, const float *keys) {
    const size_t heads = query->shape.heads, width = query->shape.width, rope = query->shape.rope;
    const size_t latent = query->shape.latent, pack = query->pack, lanes = query->lanes;
    const float scale = per_log_2 / sqrtf((float)(width + rope));
    EACH_TILE()
    for (size_t lane = 0; lane < lanes; lane++) {
        for (size_t c = 0; c < query->depth / pack; c++) query->q[c * lanes + lane] = 0.0f;
    }
    for (size_t head = 0; head < heads; head++) {
        float *product = query->mean + head * latent, *to = query->q + head * pack;
        multiply_row(latent, width, q + head * width, keys + head * width * latent, latent, false, product);
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
        multiply((struct product){count, lanes, false, p, lanes, {{depth, rows, depth, 1, query->q, lanes}}});
}

/* Of a block; meanwhile the next block of rows is fetched. */
SL_INLINE void make_scores(const struct query *query, const float *rows, size_t keys) {
    const size_t depth = query->depth;
    for (size_t key = 0; key < keys; key += ABREAST) {
        const float *from = rows + key * depth;
        fetch_rows(from + KEYS * depth, depth);
        score(query, from, smaller(ABREAST, keys - key), query->p + key * query->lanes);
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
SL_INLINE void attend(const struct query *query, size_t seen, const float *cache) {
    const size_t heads = query->shape.heads, latent = query->shape.latent, depth = query->depth;
    begin(query);
    for (size_t from = 0; from < seen; from += KEYS) {
        const size_t keys = smaller(KEYS, seen - from);
        const float *rows = cache + from * depth;
        make_scores(query, rows, keys);
        EACH_TILE()
        for (size_t group = 0; group < query->lanes; group += LANES) exponentials_of(query, group, keys);
        if (from) scale_means(query, query->factor, false);
        multiply_parts((struct product){
            heads, latent, from > 0, query->mean, latent, {{keys, query->p, query->pack, query->lanes, rows, depth}}});
    }
    scale_means(query, query->sum, true);
}

/* o = bias + the means, each multiplied with its head's V. */
SL_INLINE void expand_means(const struct query *query, const float *values, const float *bias, float *o) {
    const size_t heads = query->shape.heads, width = query->shape.width, latent = query->shape.latent;
    EACH_TILE()
    for (size_t c = 0; c < heads * width; c++) o[c] = bias[c];
    for (size_t head = 0; head < heads; head++)
        multiply_row(width, latent, query->mean + head * latent, values + head * width, heads * width, true,
                     o + head * width);
}

static void forward(const struct sl_latent_attention *shape, const float *q, const float *q_rope, const float *cache,
                    const float *table, const float *bias, float *o, void *scratch) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t latent = shape->latent, rows = sequences * queries;
    const float *keys = table, *values = table + latent * heads * width;
    float *room = scratch;
    for (size_t first = 0; first < rows; first += SLOTS) {
        const size_t count = smaller(SLOTS, rows - first);
        SL_ROWS(is_device_ptr(q, q_rope, cache, keys, values, bias, o, room))
        for (size_t slot = 0; slot < count; slot++) {
            const size_t row = first + slot, seen = position + row % queries + 1;
            const struct sl_latent_attention all = {sequences, queries, position, key_rows, heads, width, rope, latent};
            struct query query = query_of(&all);
            query.q = room + slot * floats_of(&query);
            query.p = query.q + query.depth / query.pack * query.lanes;
            query.largest = query.p + KEYS * query.lanes;
            query.sum = query.largest + query.lanes;
            query.factor = query.sum + query.lanes;
            query.mean = query.factor + query.lanes;
            absorb_query(&query, q + row * (heads * width), rope ? q_rope + row * (heads * rope) : q, keys);
            attend(&query, seen, cache + row / queries * key_rows * query.depth);
            expand_means(&query, values, bias, o + row * (heads * width));
        }
    }
}

/* K transposed, [columns, latent]; then V, [latent, columns]. */
static void absorb(size_t latent, size_t columns, const float *kernel, float *table) {
    float *values = table + columns * latent;
    SL_ROWS(is_device_ptr(kernel, table, values))
    for (size_t l = 0; l < latent; l++) {
        const float *row = kernel + l * (2 * columns);
        SL_LANES()
        for (size_t c = 0; c < columns; c++) {
            table[c * latent + l] = row[c];
            values[l * columns + c] = row[columns + c];
        }
    }
}

const struct sl_latent_kernels SL_LATENT_KERNELS = {.absorb = absorb, .scratch = scratch, .forward = forward};
