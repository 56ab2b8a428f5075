/* cached.c - positions of a call's tokens, rows of caches, and attention to them. */
#include "layers/modules/sequence/cached.h"

#include <math.h>

#include "layers/modules/sequence/context_internal.h"
#include "spmd/device/device.h"

int sl_plan_positions(const struct sl_plan *plan, int positions) {
    if (plan->sequence < 1 || plan->rows % plan->sequence)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%ssequence: %d rows a microbatch are no whole number of sequences of %d", plan->name,
                            plan->rows, plan->sequence);
    const int sequence = sl_plan_whole_sequence(plan);
    if (sequence <= positions) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "%spositions: sequences of %d, but there are only %d positions",
                        plan->name, sequence, positions);
}

/* ---- positions ---- */

int sl_abreast(const struct sl_context *context, int first) {
    const int sequences = context->rows / context->sequence;
    int end = first + 1;
    if (!context->positions) return sequences - first;
    while (end < sequences && context->positions[end] == context->positions[first]) end++;
    return end - first;
}

static int check_caches(const struct sl_module *module, struct sl_context *context) {
    const struct sl_caches *caches = context->caches;
    const int sequences = context->rows / context->sequence;
    if (sl_cached_sequence(context) + sequences > caches->sequences)
        return sl_fail(context->self, SL_BAD_INPUT, "%s: microbatch %d of %d sequences, but caches of only %d",
                       module->name, context->microbatch, sequences, caches->sequences);
    if (context->positions && context->sequence > 1)
        return sl_fail(context->self, SL_BAD_INPUT, "%s: sequences of %d rows have one position", module->name,
                       context->sequence);
    return SL_OK;
}

int sl_check_positions(const struct sl_module *module, struct sl_context *context, int positions) {
    const struct sl_caches *caches = context->caches;
    const int sequences = context->rows / context->sequence;
    const int cached = !caches ? positions : caches->positions * (caches->parts > 1 ? caches->parts : 1);
    if (cached < positions) positions = cached;
    for (int s = 0; s < sequences; s += sl_abreast(context, s)) {
        const int first = sl_first_position(context, s), end = first + context->sequence;
        if (end > positions)
            return sl_fail(context->self, SL_BAD_INPUT,
                           "%s: tokens at positions %d to %d, but there are only %d positions", module->name, first,
                           end - 1, positions);
    }
    return caches ? check_caches(module, context) : SL_OK;
}

/* ---- rows of caches ---- */

/* Each of the call's microbatches has equally many sequences. */
int sl_cached_sequence(const struct sl_context *context) {
    const int each = context->rows / context->sequence / (int)sl_call_microbatches(context);
    return context->first_sequence + context->microbatch * each;
}

/* Writes ROWS [rows, cols] to a cache, from element TO on. */
static void put(const struct sl_context *context, size_t count, size_t cols, const float *rows, size_t stride,
                void *cached, size_t to, size_t cached_stride) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    if (context->caches->storage == SL_BF16)
        kernels->round_block(count, cols, rows, stride, (uint16_t *)cached + to, cached_stride);
    else
        kernels->copy_block(count, cols, rows, stride, (float *)cached + to, cached_stride);
}

const void *sl_cache_append(const struct sl_context *context, int number, size_t first, size_t count, const float *rows,
                            size_t stride) {
    const struct sl_caches *caches = context->caches;
    const size_t columns = caches->cache[number].columns, tokens = (size_t)context->sequence;
    const size_t positions = (size_t)caches->positions;
    const int sequences = context->rows / context->sequence;
    void *cached = sl_cache_rows(caches, number, sl_cached_sequence(context));
    for (int s = 0, abreast; s < sequences; s += abreast) {
        const float *from = rows + (size_t)s * tokens * stride;
        const int position = sl_first_position(context, s);
        abreast = tokens == 1 ? sl_abreast(context, s) : 1;
        for (int t = 0, piece; t < context->sequence; t += piece) {
            const size_t place = (size_t)s * positions + (size_t)sl_caches_before(caches, position + t);
            const size_t to = place * columns + first;
            piece = sl_caches_piece(caches, position + t, context->sequence - t);
            if (!sl_caches_have(caches, position + t)) continue;
            if (tokens == 1)
                put(context, (size_t)abreast, count, from, stride, cached, to, positions * columns);
            else
                put(context, (size_t)piece, count, from + (size_t)t * stride, stride, cached, to, columns);
        }
    }
    return cached;
}

/* ---- attention ---- */

int sl_plan_cached(struct sl_plan *plan, const struct sl_attention *shape, struct sl_cached *cached) {
    const struct sl_caches *caches = plan->caches;
    const size_t o = sl_plan_rows(plan) * shape->heads * shape->width * sizeof(float);
    const size_t logsum = sl_plan_rows(plan) * shape->heads * sizeof(float), parts = (size_t)caches->parts;
    cached->group = -1;
    if (parts < 2) return SL_OK;
    if (!sl_device.shares_memory)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%scaches: device %s does not divide them over \"%s\"",
                            plan->name, sl_device.name, caches->axis);
    sl_plan_workspace(plan, o, &cached->o);
    sl_plan_workspace(plan, logsum, &cached->logsum);
    sl_plan_workspace(plan, parts * o, &cached->all_o);
    sl_plan_workspace(plan, parts * logsum, &cached->all_logsum);
    return sl_plan_group(plan, caches->axis, &cached->group);
}

/* Rows of a call that see the same keys of each coordinate, apart from a window that moves along with them. */
struct piece {
    int sequence, position; /* of the first row */
    size_t row, rows;
};

/* Sets *PIECE to the rows after it; at first it is all zeros. Returns false at the end. */
static bool next_piece(const struct sl_context *context, int window, struct piece *piece) {
    const int tokens = context->sequence;
    const size_t row = piece->row + piece->rows;
    if (row == (size_t)context->rows) return false;
    const int sequence = (int)row / tokens, place = (int)row % tokens;
    const int position = sl_first_position(context, sequence) + place, first = position + 1 - window;
    int rows = sl_caches_piece(context->caches, position, tokens - place);
    if (window) rows = first >= 0 ? sl_caches_piece(context->caches, first, rows) : -first < rows ? -first : rows;
    *piece = (struct piece){sequence, position, row, (size_t)rows};
    return true;
}

/* Sets *PART to the keys of this coordinate that PIECE sees. Returns false if it sees none. */
static bool find_part(const struct sl_context *context, int window, const struct piece *piece,
                      struct sl_cached_part *part) {
    const struct sl_caches *caches = context->caches;
    const int first = window ? piece->position + 1 - window : 0;
    const bool moves = first >= 0 && window && sl_caches_have(caches, first);
    const int seen = sl_caches_before(caches, piece->position), begin = first > 0 ? sl_caches_before(caches, first) : 0;
    const size_t skipped = moves ? 0 : (size_t)begin; /* keys that no row sees */
    const bool own = sl_caches_have(caches, piece->position);
    *part = (struct sl_cached_part){.sequence = sl_cached_sequence(context) + piece->sequence,
                                    .row = piece->row,
                                    .rows = piece->rows,
                                    .first = skipped,
                                    .position = (size_t)seen - skipped,
                                    .keys = (size_t)(own ? caches->positions : seen) - skipped,
                                    .window = moves ? (size_t)(seen - begin + 1) : 0};
    return own || begin < seen;
}

/* Attends to this coordinate's keys. */
static void attend_piece(const struct sl_context *context, const struct sl_attention *shape,
                         const struct sl_cached *cached, const struct piece *piece, sl_attend_part *attend,
                         const void *arg) {
    const size_t heads = shape->heads, columns = heads * shape->width;
    float *const o = (float *)sl_at(context, &cached->o) + piece->row * columns;
    float *const logsum = (float *)sl_at(context, &cached->logsum) + piece->row * heads;
    struct sl_cached_part part;
    if (find_part(context, (int)shape->window, piece, &part)) {
        attend(context, arg, &part, o, logsum);
        return;
    }
    context->kernels->fill(piece->rows * columns, 0.0f, o);
    context->kernels->fill(piece->rows * heads, -INFINITY, logsum);
}

/* Merges the coordinates' results in their order, so that all coordinates have the same bits. */
static void merge_piece(const struct sl_context *context, const struct sl_attention *all,
                        const struct sl_cached *cached, const struct piece *piece, float *o, float *logsum) {
    const size_t heads = all->heads, columns = heads * all->width, rows = (size_t)context->rows;
    const float *const all_o = sl_at(context, &cached->all_o);
    const float *const all_logsum = sl_at(context, &cached->all_logsum);
    struct sl_attention shape = *all;
    shape.sequences = 1;
    shape.queries = piece->rows;
    o += piece->row * columns;
    logsum += piece->row * heads;
    context->kernels->fill(piece->rows * columns, 0.0f, o);
    context->kernels->fill(piece->rows * heads, -INFINITY, logsum);
    for (size_t i = 0; i < (size_t)context->caches->parts; i++)
        context->kernels->attention->merge(&shape, all_o + (i * rows + piece->row) * columns,
                                           all_logsum + (i * rows + piece->row) * heads, o, logsum);
}

int sl_attend_parts(struct sl_context *context, const struct sl_attention *shape, const struct sl_cached *cached,
                    sl_attend_part *attend, const void *arg, struct sl_out to, float *logsum) {
    const struct sl_group *peers = sl_group_of(context, cached->group);
    const size_t rows = (size_t)context->rows, heads = shape->heads, columns = heads * shape->width;
    const int window = (int)shape->window;
    for (struct piece piece = {0}; next_piece(context, window, &piece);)
        attend_piece(context, shape, cached, &piece, attend, arg);
    SL_TRY(sl_communicate(context, sl_describe_all_gather(peers, SL_F32, sl_at(context, &cached->o),
                                                          sl_at(context, &cached->all_o), rows * columns)));
    SL_TRY(sl_communicate(context, sl_describe_all_gather(peers, SL_F32, sl_at(context, &cached->logsum),
                                                          sl_at(context, &cached->all_logsum), rows * heads)));
    float *const o = sl_out_floats(to);
    for (struct piece piece = {0}; next_piece(context, window, &piece);)
        merge_piece(context, shape, cached, &piece, o, logsum);
    sl_context_settle(context, columns, to);
    return SL_OK;
}

/* Queries, and caches of keys and values. */
struct queries {
    const struct sl_attention *shape;
    const struct sl_cached *cached;
    const float *q, *q_rope;
};

static void attend_to_keys(const struct sl_context *context, const void *arg, const struct sl_cached_part *part,
                           float *o, float *logsum) {
    const struct queries *queries = arg;
    const struct sl_caches *caches = context->caches;
    const int numbers[] = {queries->cached->k, queries->cached->v, queries->cached->k_rope};
    const size_t size = sl_dtype_size(caches->storage);
    struct sl_attention shape = *queries->shape;
    const char *rows[] = {NULL, NULL, NULL};
    for (int i = 0; i < (shape.rope ? 3 : 2); i++)
        rows[i] = (const char *)sl_cache_rows(caches, numbers[i], part->sequence) +
                  part->first * caches->cache[numbers[i]].columns * size;
    shape.sequences = 1;
    shape.queries = part->rows;
    shape.position = part->position;
    shape.key_rows = part->keys;
    shape.keys = caches->storage;
    shape.window = part->window;
    context->kernels->attention->forward(&shape, queries->q + part->row * shape.heads * shape.width,
                                         shape.rope ? queries->q_rope + part->row * shape.heads * shape.rope : NULL,
                                         rows[0], rows[1], rows[2], sl_out_f32(o), logsum);
}

int sl_attend_cached(struct sl_context *context, const struct sl_attention *all, const struct sl_cached *cached,
                     const float *q, const float *q_rope, struct sl_out o, float *logsum) {
    const struct sl_caches *caches = context->caches;
    const size_t columns = all->heads * all->width, rotated = all->heads * all->rope;
    if (cached->group >= 0)
        return sl_attend_parts(context, all, cached, attend_to_keys, &(struct queries){all, cached, q, q_rope}, o,
                               logsum);
    for (int s = 0, abreast; s < context->rows / context->sequence; s += abreast) {
        const int sequence = sl_cached_sequence(context) + s;
        const size_t first = (size_t)s * (size_t)context->sequence;
        struct sl_attention shape = *all;
        abreast = sl_abreast(context, s);
        shape.sequences = (size_t)abreast;
        shape.queries = (size_t)context->sequence;
        shape.position = (size_t)sl_first_position(context, s);
        shape.key_rows = (size_t)caches->positions;
        shape.keys = caches->storage;
        sl_attend(context, &shape, q + first * columns, shape.rope ? q_rope + first * rotated : NULL,
                  sl_cache_rows(caches, cached->k, sequence), sl_cache_rows(caches, cached->v, sequence),
                  shape.rope ? sl_cache_rows(caches, cached->k_rope, sequence) : NULL, sl_out_from(o, first * columns),
                  logsum);
    }
    return SL_OK;
}
