/* attention_latent.c - attention over cached latents, built once per CPU level, or for devices.
 *
 * The build defines SL_LATENT_KERNELS, the table's name, and lets the compiler fuse a * b + c.
 *
 * A query goes through blocks of rows of the cache. Its scores lie [keys, heads]: heads are the lanes of vectors, so
 * that an element of a row is multiplied for all heads at once. Where heads fill half a vector, or a quarter, so many
 * neighbouring elements go together. A crew shares a query: its heads, and while scores are made its keys. On NVIDIA a
 * team has a query, its threads the tiles. */
#include "layers/kernels/attention_latent.h"
#include "layers/kernels/tiles_internal.h"
#include "spmd/base/crew.h"

/* KEYS: in a block; ABREAST: whose scores are computed together; MOST_PACK: neighbouring elements of a row in a vector;
 * ABREAST_VECTORS: of a row's product. SPAN: keys whose scores a crew makes before it weighs them; MOST_PARTS: in which
 * it takes them; SHARED: of absorbed weights, with fewer of which one core is as fast alone. */
enum { KEYS = 64, ABREAST_VECTORS = 8 };
enum { SPAN = SL_CREWS ? 512 : KEYS, MOST_PARTS = SL_CREWS ? 8 : 1, SHARED = 1 << 14 };
enum { HALF = LANES > 1 ? LANES / 2 : 1 };
#if defined(SL_DEVICE_CUDA)
enum { ABREAST = KEYS, MOST_PACK = 1 };
#define score_packed(...) ((void)0)
#define fetch(address, bytes) ((void)(address), (void)(bytes))
#else
#include "layers/kernels/attention_latent_packed_internal.h"
#endif
static const float per_log_2 = 1.44269504f;

/* PACK: elements of a row in a vector of LANES lanes, which are the heads', times PACK. */
struct query {
    struct sl_latent_attention shape;
    size_t depth, pack, lanes; /* depth: columns of a row of the cache */
    /* Scratch. P [SPAN, lanes]: scores. MEAN [heads, latent]: sums of latents by 2^(score - largest); before, each
     * head's query, multiplied with its K. ROOMS [MOST_PARTS]: of struct part. */
    float *p, *mean, *rooms;
};

/* Some of the heads, and a room, into which nobody else writes: cores that write to one line wait for each other. */
struct part {
    size_t first, end, lane, lanes; /* heads; the first one's lane, and how many there are */
    float *q; /* [depth / pack, all lanes]: lane h * pack + i has head h's element i of pack; of all heads */
    /* WEIGHTS [KEYS, stride]: a block's 2^(score - largest), where the scores were if one part has all lanes. Of each
     * lane the largest score so far, the sum of weights, and what the last block has made of that sum's unit. */
    float *weights, *largest, *sum, *factor;
    size_t stride;
    float *rows; /* [KEYS, depth]: a block of the cache as floats, where it is bf16 */
};

static struct query query_of(const struct sl_latent_attention *shape) {
    struct query query = {.shape = *shape, .depth = shape->latent + shape->rope, .pack = 1};
    while (query.pack < MOST_PACK && 2 * query.pack * shape->heads <= LANES && query.depth % (2 * query.pack) == 0)
        query.pack *= 2;
    query.lanes = sl_round_up(shape->heads * query.pack, LANES);
    return query;
}

/* Rooms begin at whole cache lines, as different cores write them. */
static size_t whole_lines(size_t floats) { return sl_round_up(floats, SL_CACHE_LINE / sizeof(float)); }

static size_t floats_of_room(const struct query *q) {
    const size_t rows = q->shape.cached == SL_BF16 ? KEYS * q->depth : 0;
    return whole_lines((q->depth / q->pack + KEYS + 3) * q->lanes + rows);
}

static size_t floats_before_rooms(const struct query *q) {
    return whole_lines(SPAN * q->lanes + q->shape.heads * q->shape.latent);
}

static size_t floats_of(const struct query *q) { return floats_before_rooms(q) + MOST_PARTS * floats_of_room(q); }

static size_t scratch(const struct sl_latent_attention *shape) {
    const struct query query = query_of(shape);
    const size_t rows = shape->sequences * shape->queries;
    return smaller(rows, SL_ABREAST) * floats_of(&query) * sizeof(float);
}

/* ROOM: a query's scratch. */
static struct query query_in(const struct sl_latent_attention *shape, float *room) {
    struct query query = query_of(shape);
    query.p = room;
    query.mean = query.p + SPAN * query.lanes;
    query.rooms = room + floats_before_rooms(&query);
    return query;
}

/* Part NUMBER of COUNT: parts have whole halves of vectors, or all lanes of a head that has more. */
static struct part part_of(const struct query *query, size_t number, size_t count) {
    const size_t heads = query->shape.heads, pack = query->pack, lanes = query->lanes;
    const size_t unit = HALF > pack ? HALF / pack : 1, units = (heads + unit - 1) / unit;
    struct part part = {.first = units * number / count * unit,
                        .end = smaller(units * (number + 1) / count * unit, heads)};
    part.lane = part.first * pack;
    part.lanes = (part.end == heads ? lanes : part.end * pack) - part.lane;
    part.q = query->rooms + number * floats_of_room(query);
    part.largest = part.q + query->depth / pack * lanes;
    part.sum = part.largest + lanes;
    part.factor = part.sum + lanes;
    part.weights = count > 1 ? part.factor + lanes : query->p;
    part.stride = count > 1 ? part.lanes : lanes;
    part.rows = part.factor + lanes + KEYS * lanes;
    return part;
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
                .wanted = NULL};
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
            1, cols, accumulate, y, cols, {{depth, x, depth, 1, (const float *)table + first, b_row}}, .wanted = NULL});
}

/* ---- scores ---- */

/* K of each head is multiplied with its query. */
SL_INLINE void absorb(const struct query *query, const struct part *part, const float *q, const void *table) {
    const size_t width = query->shape.width, latent = query->shape.latent;
    for (size_t head = part->first; head < part->end; head++)
        multiply_row(query, latent, width, q + head * width, table, head * width * latent, latent, false,
                     query->mean + head * latent);
}

/* What all heads' queries have become is laid out as lanes. */
SL_INLINE void lay_queries(const struct query *query, const struct part *part, const float *q_rope) {
    const size_t rope = query->shape.rope, latent = query->shape.latent, pack = query->pack, lanes = query->lanes;
    const float scale = per_log_2 / sqrtf((float)(query->shape.width + rope));
    EACH_TILE()
    for (size_t lane = 0; lane < lanes; lane++) {
        for (size_t c = 0; c < query->depth / pack; c++) part->q[c * lanes + lane] = 0.0f;
    }
    for (size_t head = 0; head < query->shape.heads; head++) {
        const float *product = query->mean + head * latent;
        float *to = part->q + head * pack;
        EACH_TILE()
        for (size_t c = 0; c < latent; c++) to[c / pack * lanes + c % pack] = scale * product[c];
        for (size_t c = latent; c < query->depth; c++)
            to[c / pack * lanes + c % pack] = scale * q_rope[head * rope + c - latent];
    }
}

/* p [count, lanes] of rows of the cache; all lanes of a head have its score. */
SL_INLINE void score(const struct query *query, const float *q, const float *rows, size_t count, float *p) {
    const size_t depth = query->depth, lanes = query->lanes;
    if (query->pack == 2)
        score_packed(q, depth, rows, count, 2, p);
    else if (query->pack == 4)
        score_packed(q, depth, rows, count, 4, p);
    else
        multiply((struct product){count, lanes, false, p, lanes, {{depth, rows, depth, 1, q, lanes}}, .wanted = NULL});
}

/* The rows of a block from KEY on, as floats; ROOM [KEYS, depth] is for those that are none. */
SL_INLINE const float *block_of(const struct query *query, const void *cache, size_t key, size_t keys, float *room) {
    const size_t depth = query->depth;
    if (query->shape.cached != SL_BF16) return (const float *)cache + key * depth;
    widen_rows(keys, depth, (const uint16_t *)cache + key * depth, depth, room);
    return room;
}

/* Of a block of ROWS; meanwhile the next block is fetched, which begins at row NEXT of the cache. */
SL_INLINE void make_scores(const struct query *query, const struct part *part, const float *rows, size_t keys,
                           const void *cache, size_t next, float *p) {
    const size_t depth = query->depth, bytes = depth * (query->shape.cached == SL_BF16 ? 2 : sizeof *rows);
    for (size_t key = 0; key < keys; key += ABREAST) {
        fetch((const char *)cache + (next + key) * bytes, ABREAST * bytes);
        score(query, part->q, rows + key * depth, smaller(ABREAST, keys - key), p + key * query->lanes);
    }
}

/* Of COUNT lanes from LANE of a part on the scores P become weights. */
SL_INLINE void exponentials_of(const struct query *query, const struct part *part, size_t lane, size_t keys,
                               const float *p, const int count) {
    float *largest = part->largest + lane, *sum = part->sum + lane, *factor = part->factor + lane, high[LANES];
    const float *scores = p + part->lane + lane;
    float *weights = part->weights + lane, total[LANES];
    for (int l = 0; l < count; l++) high[l] = largest[l];
    for (size_t key = 0; key < keys; key++) {
        const float *score = scores + key * query->lanes;
        SL_IN_BLOCK()
        for (int l = 0; l < count; l++) high[l] = score[l] > high[l] ? score[l] : high[l];
    }
    SL_IN_BLOCK()
    for (int l = 0; l < count; l++) {
        factor[l] = sl_exp2(largest[l] - high[l]);
        largest[l] = high[l];
        total[l] = sum[l] * factor[l];
    }
    for (size_t key = 0; key < keys; key++) {
        const float *score = scores + key * query->lanes;
        float *weight = weights + key * part->stride;
        SL_IN_BLOCK()
        for (int l = 0; l < count; l++) {
            const float e = sl_exp2(score[l] - high[l]);
            weight[l] = e;
            total[l] += e;
        }
    }
    for (int l = 0; l < count; l++) sum[l] = total[l];
}

/* ---- a query ---- */

SL_INLINE void begin(const struct part *part) {
    EACH_TILE()
    for (size_t lane = 0; lane < part->lanes; lane++) {
        part->largest[lane] = -INFINITY;
        part->sum[lane] = 0.0f;
    }
}

/* Each head's sum of latents is multiplied by a factor that its lanes have, or divided. */
SL_INLINE void scale_means(const struct query *query, const struct part *part, const float *by, const bool divide) {
    const size_t latent = query->shape.latent;
    EACH_TILE()
    for (size_t head = part->first; head < part->end; head++) {
        const float given = by[(head - part->first) * query->pack], factor = divide ? 1.0f / given : given;
        float *mean = query->mean + head * latent;
        if (factor == 1.0f) continue;
        SL_IN_BLOCK()
        for (size_t c = 0; c < latent; c++) mean[c] *= factor;
    }
}

/* Adds the latents of a block of ROWS, which has the scores P, to the means. */
SL_INLINE void weigh(const struct query *query, const struct part *part, const float *rows, size_t keys, const float *p,
                     bool first) {
    const size_t latent = query->shape.latent, whole = part->lanes / LANES * LANES;
    EACH_TILE()
    for (size_t lane = 0; lane < whole; lane += LANES) exponentials_of(query, part, lane, keys, p, LANES);
    if (LANES > 1 && whole < part->lanes) exponentials_of(query, part, whole, keys, p, HALF);
    if (!first) scale_means(query, part, part->factor, false);
    multiply_parts((struct product){part->end - part->first,
                                    latent,
                                    !first,
                                    query->mean + part->first * latent,
                                    latent,
                                    {{keys, part->weights, query->pack, part->stride, rows, query->depth}},
                                    .wanted = NULL});
}

/* All heads, over the first SEEN rows of the cache. */
SL_INLINE void attend(const struct query *query, const struct part *all, size_t seen, const void *cache) {
    begin(all);
    for (size_t from = 0; from < seen; from += KEYS) {
        const size_t keys = smaller(KEYS, seen - from);
        const float *rows = block_of(query, cache, from, keys, all->rows);
        make_scores(query, all, rows, keys, cache, from + KEYS, query->p);
        weigh(query, all, rows, keys, query->p, from == 0);
    }
}

/* o = bias + the means, each multiplied with its head's V. */
SL_INLINE void expand_means(const struct query *query, const struct part *part, const void *table, const float *bias,
                            float *o) {
    const size_t heads = query->shape.heads, width = query->shape.width, latent = query->shape.latent;
    const size_t values = latent * heads * width; /* they lie behind the keys */
    scale_means(query, part, part->sum, true);
    EACH_TILE()
    for (size_t c = part->first * width; c < part->end * width; c++) o[c] = bias[c];
    for (size_t head = part->first; head < part->end; head++)
        multiply_row(query, width, latent, query->mean + head * latent, table, values + head * width, heads * width,
                     true, o + head * width);
}

/* ---- a query by several threads ---- */

/* Each has some of the heads, but while scores are made, where heads are the lanes of vectors, some of the keys. */
struct shared {
    struct query query;
    const float *q, *q_rope, *bias;
    const void *cache, *table;
    float *o;
    size_t seen, from, end, parts; /* from, end: of a span */
};

static void absorb_part(void *arg, int number) {
    const struct shared *s = arg;
    const struct part part = part_of(&s->query, (size_t)number, s->parts);
    absorb(&s->query, &part, s->q, s->table);
}

static void score_part(void *arg, int number) {
    const struct shared *s = arg;
    const struct query *query = &s->query;
    const struct part part = part_of(query, (size_t)number, s->parts);
    const size_t groups = (s->end - s->from + ABREAST - 1) / ABREAST, n = (size_t)number;
    const size_t end = smaller(s->from + groups * (n + 1) / s->parts * ABREAST, s->end);
    if (s->from == 0) lay_queries(query, &part, s->q_rope);
    for (size_t from = s->from + groups * n / s->parts * ABREAST; from < end; from += KEYS) {
        const size_t keys = smaller(KEYS, end - from);
        make_scores(query, &part, block_of(query, s->cache, from, keys, part.rows), keys, s->cache, from + KEYS,
                    query->p + (from - s->from) * query->lanes);
    }
}

static void weigh_part(void *arg, int number) {
    const struct shared *s = arg;
    const struct query *query = &s->query;
    const struct part part = part_of(query, (size_t)number, s->parts);
    if (s->from == 0) begin(&part);
    for (size_t from = s->from; from < s->end; from += KEYS) {
        const size_t keys = smaller(KEYS, s->end - from);
        weigh(query, &part, block_of(query, s->cache, from, keys, part.rows), keys,
              query->p + (from - s->from) * query->lanes, from == 0);
    }
    if (s->end == s->seen) expand_means(query, &part, s->table, s->bias, s->o);
}

static void share(struct shared *s, struct sl_crew *crew) {
    sl_crew_run(crew, (int)s->parts, absorb_part, s);
    for (s->from = 0; s->from < s->seen; s->from = s->end) {
        s->end = smaller(s->from + SPAN, s->seen);
        sl_crew_run(crew, (int)s->parts, score_part, s);
        sl_crew_run(crew, (int)s->parts, weigh_part, s);
    }
}

/* Row I of a cache, or table. */
SL_INLINE const void *cached_row(enum sl_dtype dtype, const void *cache, size_t depth, size_t i) {
    return dtype == SL_BF16 ? (const void *)((const uint16_t *)cache + i * depth)
                            : (const void *)((const float *)cache + i * depth);
}

static bool shares(const struct sl_latent_attention *shape, struct sl_crew *crew) {
    return crew && shape->heads > 1 && 2 * shape->latent * shape->heads * shape->width >= SHARED;
}

static void forward_shared(const struct sl_latent_attention *shape, const float *q, const float *q_rope,
                           const void *cache, const void *table, const float *bias, float *o, void *scratch,
                           struct sl_crew *crew) {
    const size_t columns = shape->heads * shape->width, depth = shape->latent + shape->rope;
    const size_t rotated = shape->heads * shape->rope;
    for (size_t row = 0; row < shape->sequences * shape->queries; row++) {
        struct shared shared = {.query = query_in(shape, scratch),
                                .q = q + row * columns,
                                .q_rope = rotated ? q_rope + row * rotated : q,
                                .bias = bias,
                                .cache =
                                    cached_row(shape->cached, cache, depth, row / shape->queries * shape->key_rows),
                                .table = table,
                                .o = o + row * columns,
                                .seen = shape->position + row % shape->queries + 1,
                                .parts = smaller((size_t)sl_crew_threads(crew), smaller(MOST_PARTS, shape->heads))};
        share(&shared, crew);
    }
}

static void forward(const struct sl_latent_attention *shape, const float *q, const float *q_rope, const void *cache,
                    const void *table, const float *bias, float *o, void *scratch, void *queue) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t latent = shape->latent, rows = sequences * queries;
    const enum sl_dtype cached = shape->cached;
    float *room = scratch;
    if (SL_CREWS && shares(shape, queue)) {
        forward_shared(shape, q, q_rope, cache, table, bias, o, scratch, queue);
        return;
    }
    for (size_t first = 0; first < rows; first += SL_ABREAST) {
        const size_t count = smaller(SL_ABREAST, rows - first);
        SL_ROWS(is_device_ptr(q, q_rope, cache, table, bias, o, room))
        for (size_t slot = 0; slot < count; slot++) {
            const size_t row = first + slot, seen = position + row % queries + 1;
            const struct sl_latent_attention all = {sequences, queries, position, key_rows, heads,
                                                    width,     rope,    latent,   cached};
            const struct query sized = query_of(&all), query = query_in(&all, room + slot * floats_of(&sized));
            const struct part part = part_of(&query, 0, 1);
            absorb(&query, &part, q + row * (heads * width), table);
            lay_queries(&query, &part, rope ? q_rope + row * (heads * rope) : q);
            attend(&query, &part, seen, cached_row(cached, cache, query.depth, row / queries * key_rows));
            expand_means(&query, &part, table, bias, o + row * (heads * width));
        }
    }
}

/* K transposed, [columns, latent]; then V, [latent, columns]. */
static void make_table(size_t latent, size_t columns, const float *kernel, enum sl_dtype dtype, void *table) {
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

const struct sl_latent_kernels SL_LATENT_KERNELS = {.absorb = make_table, .scratch = scratch, .forward = forward};
