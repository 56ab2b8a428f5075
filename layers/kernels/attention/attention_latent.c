/* attention_latent.c - attention over cached latents, built once per CPU level, or for devices.
 *
 * The build defines SL_LATENT_KERNELS, the table's name, and lets the compiler fuse a * b + c.
 *
 * A query goes through blocks of rows of the cache. Its scores are [keys, heads]: heads are the lanes of vectors, so
 * that an element of a row is multiplied for several heads at once. On CPUs up to four neighbouring elements are
 * packed, and a group is the heads that then fill a vector. A crew's threads share a query's groups, which share only
 * their inputs. On NVIDIA GPUs all heads are one group; a team has a query, its threads share the tiles. If there are
 * few queries, they are divided: a group is one head, and has a team of its own, or several teams, which share its keys
 * (attention_parts_internal.h). */
#if defined(SL_DEVICE_CUDA)
#define SL_TERMS 1 /* a second term, even an empty one, would take registers */
#endif
#include "layers/kernels/attention/attention_latent.h"
#include "layers/kernels/attention/attention_latent_rows_internal.h"
#include "layers/kernels/attention/attention_parts_internal.h"
#include "layers/kernels/attention/tiles_internal.h"
#include "spmd/base/crew.h"

/* KEYS: in a block; ABREAST: keys whose scores are computed together; MOST_PACK: most neighbouring elements of a row in
 * a vector. MOST_PARTS: most parts of a query for a crew; SHARED: fewest absorbed weights for which a crew is faster
 * than one core. */
enum { KEYS = 64, MOST_PARTS = SL_CREWS ? 8 : 1, SHARED = 1 << 14 };
enum { SLOTS = SL_TEAMS }; /* teams at the same time for divided queries, each with its own scratch */
#if defined(SL_DEVICE_CUDA)
enum { ABREAST = KEYS, MOST_PACK = 1 };
#define score_packed(...) ((void)0)
#define fetch(address, bytes) ((void)(address), (void)(bytes))
#else
#include "layers/kernels/attention/attention_latent_packed_internal.h"
#endif
static const float per_log_2 = 1.44269504f, log_2 = 0.693147181f;

/* A query and its groups. PACK: elements of a row per head in a vector: a group's lanes are its heads times PACK. */
struct query {
    struct sl_latent_attention shape;
    size_t depth, pack;   /* depth: columns of a row of the cache */
    size_t group, groups; /* heads of a group, except perhaps the last group; number of groups */
    size_t lead;          /* the group whose scratch is first */
    float *rooms, *rows;  /* scratch of groups; for each part: KEYS rows of the cache as floats, if the cache is bf16 */
};

/* A group and its scratch, written by one thread only: cores that write to one cache line wait for each other. */
struct group {
    size_t first, end, lanes; /* heads; number of lanes */
    float *q;                 /* [depth / pack, lanes]: lane h * pack + i has head h's element i of pack */
    float *p;                 /* [KEYS, lanes]: a block's scores, then its 2^(score - largest) */
    /* MEAN [heads, latent]: sums of latents weighted by P; before that, each head's query times its K. For each lane
     * the largest score so far, the sum of P, and the factor by which the last block has rescaled this sum. */
    float *mean, *largest, *sum, *factor;
};

/* Returns whether a query's groups have teams of their own. */
static bool divides(const struct sl_latent_attention *shape) {
    return SL_TEAMS > 1 && shape->sequences * shape->queries < SL_TEAMS;
}

/* DIVIDED: divides(shape), a constant in kernels. */
SL_INLINE struct query query_of(const struct sl_latent_attention *shape, const bool divided) {
    struct query query = {.shape = *shape, .depth = shape->latent + shape->rope, .pack = MOST_PACK};
    while (query.depth % query.pack) query.pack /= 2;
    query.group = MOST_PACK > 1 ? LANES / query.pack : divided ? 1 : shape->heads;
    query.groups = MOST_PACK > 1 ? (shape->heads + query.group - 1) / query.group : divided ? shape->heads : 1;
    return query;
}

static size_t lanes_of(const struct query *q) { return sl_round_up(q->group * q->pack, LANES); }

/* Rooms begin at whole cache lines, because different cores write them. */
static size_t whole_lines(size_t floats) { return sl_round_up(floats, SL_CACHE_LINE / sizeof(float)); }

static size_t floats_of_group(const struct query *q) {
    return whole_lines((q->depth / q->pack + KEYS + 3) * lanes_of(q) + q->group * q->shape.latent);
}

static size_t floats_of_rows(const struct query *q) {
    return q->shape.cached == SL_BF16 ? whole_lines(KEYS * q->depth) : 0;
}

static size_t floats_of(const struct query *q) {
    return q->groups * floats_of_group(q) + MOST_PARTS * floats_of_rows(q);
}

static size_t scratch(const struct sl_latent_attention *shape) {
    const struct query query = query_of(shape, divides(shape));
    const size_t rows = shape->sequences * shape->queries;
    if (divides(shape)) return SLOTS * (floats_of_group(&query) + floats_of_rows(&query)) * sizeof(float);
    return smaller(rows, SL_ABREAST) * floats_of(&query) * sizeof(float);
}

/* ROOM: a query's scratch. */
static struct query query_in(const struct sl_latent_attention *shape, float *room) {
    struct query query = query_of(shape, false);
    query.rooms = room;
    query.rows = room + query.groups * floats_of_group(&query);
    return query;
}

static struct group group_of(const struct query *query, size_t number) {
    const size_t lanes = lanes_of(query), first = number * query->group, end = first + query->group;
    struct group group = {first, MOST_PACK > 1 ? smaller(end, query->shape.heads) : end, .lanes = lanes};
    group.q = query->rooms + (number - query->lead) * floats_of_group(query);
    group.p = group.q + query->depth / query->pack * lanes;
    group.largest = group.p + KEYS * lanes;
    group.sum = group.largest + lanes;
    group.factor = group.sum + lanes;
    group.mean = group.factor + lanes;
    return group;
}

/* ---- products ---- */

/* y [1, cols] (+)= x [1, depth] b [depth, cols], with b at element FIRST of the table. ACCUMULATE is a macro argument
 * in the loops' bodies, as in ALL_TILES. */
SL_INLINE void multiply_row(const struct query *query, size_t cols, size_t depth, const float *x, const void *table,
                            size_t first, size_t b_row, const bool accumulate, float *y) {
    const bool half = query->shape.cached == SL_BF16;
    const uint16_t *halves = (const uint16_t *)table + first;
    const float *floats = (const float *)table + first;
    if (!half && cols % LANES) {
        multiply_parts(
            (struct product){1, cols, accumulate, y, cols, {{depth, x, depth, 1, floats, b_row}}, .wanted = NULL},
            BY_ROWS);
        return;
    }
#define ALL_COLUMNS(accumulates)                                                                                       \
    EACH_TILE()                                                                                                        \
    for (size_t c = 0; c < cols; c += ABREAST_VECTORS * LANES) {                                                       \
        const size_t end = smaller(c + ABREAST_VECTORS * LANES, cols), step = b_row + nothing();                       \
        if (half)                                                                                                      \
            multiply_columns_of_row(SL_BF16, c, end, depth, x, halves, step, accumulates, y);                          \
        else                                                                                                           \
            multiply_columns_of_row(SL_F32, c, end, depth, x, floats, step, accumulates, y);                           \
    }
    if (accumulate) {
        ALL_COLUMNS(true)
    } else {
        ALL_COLUMNS(false)
    }
#undef ALL_COLUMNS
}

/* ---- scores ---- */

/* Multiplies each head's K with its query, and arranges the products as lanes. */
SL_INLINE void absorb(const struct query *query, const struct group *group, const float *q, const float *q_rope,
                      const void *table) {
    const size_t width = query->shape.width, rope = query->shape.rope, latent = query->shape.latent;
    const size_t pack = query->pack, lanes = group->lanes;
    const float scale = per_log_2 / sqrtf((float)(width + rope));
    for (size_t head = group->first; head < group->end; head++)
        multiply_row(query, latent, width, q + head * width, table, head * width * latent, latent, false,
                     group->mean + (head - group->first) * latent);
    EACH_TILE()
    for (size_t lane = 0; lane < lanes; lane++) {
        for (size_t c = 0; c < query->depth / pack; c++) group->q[c * lanes + lane] = 0.0f;
        group->largest[lane] = -INFINITY;
        group->sum[lane] = 0.0f;
    }
    for (size_t head = group->first; head < group->end; head++) {
        const size_t own = head - group->first;
        const float *product = group->mean + own * latent;
        float *to = group->q + own * pack;
        EACH_TILE()
        for (size_t c = 0; c < latent; c++) to[c / pack * lanes + c % pack] = scale * product[c];
        for (size_t c = latent; c < query->depth; c++)
            to[c / pack * lanes + c % pack] = scale * q_rope[head * rope + c - latent];
    }
}

/* p [count, lanes] = scores of rows of the cache; all lanes of a head have its score. */
SL_INLINE void score(const struct query *query, const struct group *group, const float *rows, size_t count, float *p) {
    const size_t depth = query->depth, lanes = group->lanes;
    if (query->pack == 2)
        score_packed(group->q, depth, rows, count, 2, p);
    else if (query->pack == 4)
        score_packed(group->q, depth, rows, count, 4, p);
    else
        multiply(
            (struct product){count, lanes, false, p, lanes, {{depth, rows, depth, 1, group->q, lanes}}, .wanted = NULL},
            BY_ROWS);
}

/* Returns the rows of a block from KEY on as floats; ROOM [KEYS, depth] is for widened rows. */
SL_INLINE const float *block_of(const struct query *query, const void *cache, size_t key, size_t keys, float *room) {
    const size_t depth = query->depth;
    if (query->shape.cached != SL_BF16) return (const float *)cache + key * depth;
    widen_rows(keys, depth, (const uint16_t *)cache + key * depth, depth, room);
    return room;
}

/* Computes the scores of a block of ROWS, and prefetches the NEXT block's rows of the cache, unless NEXT is NULL. */
SL_INLINE void make_scores(const struct query *query, const struct group *group, const float *rows, size_t keys,
                           const char *next) {
    const size_t depth = query->depth, bytes = depth * (query->shape.cached == SL_BF16 ? 2 : sizeof *rows);
    for (size_t key = 0; key < keys; key += ABREAST) {
        if (next) fetch(next + key * bytes, ABREAST * bytes);
        score(query, group, rows + key * depth, smaller(ABREAST, keys - key), group->p + key * group->lanes);
    }
}

/* Replaces scores by weights, for LANES lanes from LANE on. */
SL_INLINE void exponentials_of(const struct group *group, size_t lane, size_t keys) {
    float *largest = group->largest + lane, *sum = group->sum + lane, *factor = group->factor + lane, high[LANES];
    float *p = group->p + lane, total[LANES];
    for (int l = 0; l < LANES; l++) high[l] = largest[l];
    for (size_t key = 0; key < keys; key++) {
        const float *score = p + key * group->lanes;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) high[l] = score[l] > high[l] ? score[l] : high[l];
    }
    SL_IN_BLOCK()
    for (int l = 0; l < LANES; l++) {
        factor[l] = sl_exp2(largest[l] - high[l]);
        largest[l] = high[l];
        total[l] = sum[l] * factor[l];
    }
    for (size_t key = 0; key < keys; key++) {
        float *weight = p + key * group->lanes;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) {
            const float e = sl_exp2(weight[l] - high[l]);
            weight[l] = e;
            total[l] += e;
        }
    }
    for (int l = 0; l < LANES; l++) sum[l] = total[l];
}

/* ---- a query ---- */

/* Multiplies each head's sum of latents by the factor in its lanes, or divides by it. */
SL_INLINE void scale_means(const struct query *query, const struct group *group, const float *by, const bool divide) {
    const size_t latent = query->shape.latent;
    EACH_TILE()
    for (size_t head = 0; head < group->end - group->first; head++) {
        const float given = by[head * query->pack], factor = divide ? 1.0f / given : given;
        float *mean = group->mean + head * latent;
        if (factor == 1.0f) continue;
        SL_IN_BLOCK()
        for (size_t c = 0; c < latent; c++) mean[c] *= factor;
    }
}

/* Adds the latents of a block of ROWS to the means, weighted by the block's scores. */
SL_INLINE void weigh(const struct query *query, const bool divided, const struct group *group, const float *rows,
                     size_t keys, bool first) {
    const size_t latent = query->shape.latent;
    EACH_TILE()
    for (size_t lane = 0; lane < group->lanes; lane += LANES) exponentials_of(group, lane, keys);
    if (!first) scale_means(query, group, group->factor, false);
    multiply_parts((struct product){group->end - group->first,
                                    latent,
                                    !first,
                                    group->mean,
                                    latent,
                                    {{keys, group->p, query->pack, group->lanes, rows, query->depth}},
                                    .wanted = NULL},
                   divided            ? ONE_ROW
                   : query->pack == 1 ? BY_TERMS
                                      : BY_ROWS);
}

/* o = bias, if there is one, + each mean times its head's V. */
SL_INLINE void expand_means(const struct query *query, const struct group *group, const void *table, const float *bias,
                            float *o) {
    const size_t heads = query->shape.heads, width = query->shape.width, latent = query->shape.latent;
    const size_t values = latent * heads * width; /* they follow the keys */
    scale_means(query, group, group->sum, true);
    EACH_TILE()
    for (size_t c = group->first * width; c < group->end * width; c++) o[c] = bias ? bias[c] : 0.0f;
    for (size_t head = group->first; head < group->end; head++)
        multiply_row(query, width, latent, group->mean + (head - group->first) * latent, table, values + head * width,
                     heads * width, true, o + head * width);
}

/* Inputs and output of a query; SEEN: number of visible rows of the cache. */
struct task {
    const float *q, *q_rope, *bias;
    const void *cache, *table;
    float *o, *logsum; /* logsum [heads, rows], from the query's row on; NULL: not wanted */
    size_t rows, seen;
};

/* Writes the logsums of a group's heads to rows of LOGSUM [heads, rows]. */
SL_INLINE void leave_logsums(const struct query *query, const struct group *group, size_t rows, float *logsum) {
    for (size_t head = group->first; head < group->end; head++) {
        const size_t lane = (head - group->first) * query->pack;
        logsum[head * rows] = group->largest[lane] * log_2 + sl_log(group->sum[lane]);
    }
}

/* Computes groups [FIRST, END) over all visible rows; ROOM [KEYS, depth] is for widened rows. */
SL_INLINE void attend(const struct query *query, const bool divided, const struct task *task, size_t first, size_t end,
                      float *room) {
    const size_t bytes = query->depth * (query->shape.cached == SL_BF16 ? 2 : sizeof *room);
    for (size_t g = first; g < end; g++) {
        const struct group group = group_of(query, g);
        absorb(query, &group, task->q, task->q_rope, task->table);
    }
    for (size_t from = 0; from < task->seen; from += KEYS) {
        const size_t keys = smaller(KEYS, task->seen - from);
        const float *rows = block_of(query, task->cache, from, keys, room);
        for (size_t g = first; g < end; g++) {
            const struct group group = group_of(query, g);
            make_scores(query, &group, rows, keys,
                        g == first ? (const char *)task->cache + (from + KEYS) * bytes : NULL);
            weigh(query, divided, &group, rows, keys, from == 0);
        }
    }
    for (size_t g = first; g < end; g++) {
        const struct group group = group_of(query, g);
        expand_means(query, &group, task->table, task->bias, task->o);
        if (task->logsum) leave_logsums(query, &group, task->rows, task->logsum);
    }
}

/* ---- a query by several threads ---- */

struct shared {
    struct query query;
    struct task task;
    size_t parts;
};

static void attend_part(void *arg, int number) {
    const struct shared *s = arg;
    const size_t groups = s->query.groups, n = (size_t)number;
    attend(&s->query, false, &s->task, groups * n / s->parts, groups * (n + 1) / s->parts,
           s->query.rows + n * floats_of_rows(&s->query));
}

/* Returns row I of a cache or table. */
SL_INLINE const void *cached_row(enum sl_dtype dtype, const void *cache, size_t depth, size_t i) {
    return dtype == SL_BF16 ? (const void *)((const uint16_t *)cache + i * depth)
                            : (const void *)((const float *)cache + i * depth);
}

static bool shares(const struct sl_latent_attention *shape, struct sl_crew *crew) {
    return crew && query_of(shape, false).groups > 1 && 2 * shape->latent * shape->heads * shape->width >= SHARED;
}

static void forward_shared(const struct sl_latent_attention *shape, const float *q, const float *q_rope,
                           const void *cache, const void *table, const float *bias, float *o, float *logsum,
                           void *scratch, struct sl_crew *crew) {
    const size_t columns = shape->heads * shape->width, rotated = shape->heads * shape->rope;
    const size_t rows = shape->sequences * shape->queries;
    struct shared shared = {.query = query_in(shape, scratch)};
    shared.parts = smaller((size_t)sl_crew_threads(crew), smaller(MOST_PARTS, shared.query.groups));
    for (size_t row = 0; row < rows; row++) {
        const size_t cached = row / shape->queries * shape->key_rows;
        shared.task = (struct task){.q = q + row * columns,
                                    .q_rope = rotated ? q_rope + row * rotated : q,
                                    .bias = bias,
                                    .cache = cached_row(shape->cached, cache, shared.query.depth, cached),
                                    .table = table,
                                    .o = o + row * columns,
                                    .logsum = logsum ? logsum + row : NULL,
                                    .rows = rows,
                                    .seen = smaller(shape->position + row % shape->queries + 1, shape->key_rows)};
        sl_crew_run(crew, (int)shared.parts, attend_part, &shared);
    }
}

/* ---- a query by several teams ---- */

static void forward_divided(const struct sl_latent_attention *shape, const float *q, const float *q_rope,
                            const void *cache, const void *table, const float *bias, float *o, float *logsum,
                            float *room) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t latent = shape->latent, rows = sequences * queries, each = rows * heads;
    const enum sl_dtype cached = shape->cached;
    const size_t groups = query_of(shape, true).groups, most = position + queries;
    const size_t keys = keys_of_part(most, KEYS, rows * groups, each * (width + 1)), parts = (most + keys - 1) / keys;
    float *const all = parts > 1 ? sl_device.room() : o;
    float *const logsums = parts > 1 ? all + parts * each * width : logsum;
    const float *const added = parts > 1 ? NULL : bias;
    for (size_t begin = 0; begin < rows * groups * parts; begin += SLOTS) {
        const size_t count = smaller(SLOTS, rows * groups * parts - begin);
        SL_ROWS(is_device_ptr(q, q_rope, cache, table, added, all, logsums, room)) /* only on GPUs */
        for (size_t slot = 0; slot < count; slot++) {
            const size_t unit = begin + slot, part = unit / (rows * groups), row = unit % (rows * groups) / groups;
            const size_t seen = smaller(position + row % queries + 1, key_rows), skipped = part * keys;
            const struct sl_latent_attention sizes = {sequences, queries, position, key_rows, heads,
                                                      width,     rope,    latent,   cached};
            struct query query = query_of(&sizes, true);
            const size_t floats = floats_of_group(&query);
            query.lead = unit % groups;
            query.rooms = room + slot * (floats + floats_of_rows(&query));
            query.rows = query.rooms + floats;
            const struct group group = group_of(&query, query.lead);
            float *own = logsums ? logsums + part * each + row : NULL;
            if (parts > 1 && skipped >= seen) {
                for (size_t head = group.first; head < group.end; head++) own[head * rows] = -INFINITY;
                continue;
            }
            const struct task task = {.q = q + row * (heads * width),
                                      .q_rope = rope ? q_rope + row * (heads * rope) : q,
                                      .bias = added,
                                      .cache =
                                          cached_row(cached, cache, query.depth, row / queries * key_rows + skipped),
                                      .table = table,
                                      .o = all + part * each * width + row * (heads * width),
                                      .logsum = own,
                                      .rows = rows,
                                      .seen = smaller(seen - skipped, keys)};
            attend(&query, true, &task, query.lead, query.lead + 1, query.rows);
        }
    }
    if (parts > 1) merge_parts(parts, rows, heads, width, all, logsums, bias, o, logsum);
}

static void forward(const struct sl_latent_attention *shape, const float *q, const float *q_rope, const void *cache,
                    const void *table, const float *bias, float *o, float *logsum, void *scratch, void *queue) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t latent = shape->latent, rows = sequences * queries;
    const enum sl_dtype cached = shape->cached;
    float *room = scratch;
    if (SL_CREWS && shares(shape, queue)) {
        forward_shared(shape, q, q_rope, cache, table, bias, o, logsum, scratch, queue);
        return;
    }
    if (divides(shape)) {
        forward_divided(shape, q, q_rope, cache, table, bias, o, logsum, room);
        return;
    }
    for (size_t first = 0; first < rows; first += SL_ABREAST) {
        const size_t count = smaller(SL_ABREAST, rows - first);
        SL_ROWS(is_device_ptr(q, q_rope, cache, table, bias, o, logsum, room))
        for (size_t slot = 0; slot < count; slot++) {
            const size_t row = first + slot;
            const struct sl_latent_attention all = {sequences, queries, position, key_rows, heads,
                                                    width,     rope,    latent,   cached};
            const struct query sized = query_of(&all, false), query = query_in(&all, room + slot * floats_of(&sized));
            const struct task task = {.q = q + row * (heads * width),
                                      .q_rope = rope ? q_rope + row * (heads * rope) : q,
                                      .bias = bias,
                                      .cache = cached_row(cached, cache, query.depth, row / queries * key_rows),
                                      .table = table,
                                      .o = o + row * (heads * width),
                                      .logsum = logsum ? logsum + row : NULL,
                                      .rows = rows,
                                      .seen = smaller(position + row % queries + 1, key_rows)};
            attend(&query, false, &task, 0, query.groups, query.rows);
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
            sl_store_float(sl_f32_or_bf16(dtype), table, c * latent + l, row[c]);
            sl_store_float(sl_f32_or_bf16(dtype), table, values + l * columns + c, row[columns + c]);
        }
    }
}

const struct sl_latent_kernels SL_LATENT_KERNELS = {.absorb = make_table, .scratch = scratch, .forward = forward};
