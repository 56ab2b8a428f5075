/* cached.c - positions of a call's tokens, rows of caches, and attention to them. */
#include "layers/modules/sequence/cached.h"

#include <math.h>

#include "layers/modules/sequence/context_internal.h"

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
    sl_plan_workspace(plan, o, &cached->o);
    sl_plan_workspace(plan, logsum, &cached->logsum);
    sl_plan_workspace(plan, parts * o, &cached->all_o);
    sl_plan_workspace(plan, parts * logsum, &cached->all_logsum);
    return sl_plan_group(plan, caches->axis, &cached->group);
}

/* A call whose positions are divided. */
struct divided {
    const struct sl_context *context;
    const struct sl_attention *shape;
    const struct sl_cached *cached;
    const float *q, *q_rope;
};

/* Rows of a call that see the same keys of each coordinate, apart from a window that moves along with them. */
struct piece {
    int sequence, position; /* of the first row */
    size_t row, rows;
};

/* Sets *PIECE to the rows after it; at first it is all zeros. Returns false at the end. */
static bool next_piece(const struct divided *call, struct piece *piece) {
    const int tokens = call->context->sequence, window = (int)call->shape->window;
    const size_t row = piece->row + piece->rows;
    if (row == (size_t)call->context->rows) return false;
    const int sequence = (int)row / tokens, place = (int)row % tokens;
    const int position = sl_first_position(call->context, sequence) + place, first = position + 1 - window;
    int rows = sl_caches_piece(call->context->caches, position, tokens - place);
    if (window) rows = first >= 0 ? sl_caches_piece(call->context->caches, first, rows) : -first < rows ? -first : rows;
    *piece = (struct piece){sequence, position, row, (size_t)rows};
    return true;
}

/* Attends to this coordinate's keys. */
static void attend_piece(const struct divided *call, const struct piece *piece) {
    const struct sl_context *context = call->context;
    const struct sl_caches *caches = context->caches;
    const size_t heads = call->shape->heads, columns = heads * call->shape->width,
                 size = sl_dtype_size(caches->storage);
    const int window = (int)call->shape->window, first = window ? piece->position + 1 - window : 0;
    const bool moves = first >= 0 && window && sl_caches_have(caches, first);
    const int seen = sl_caches_before(caches, piece->position), begin = first > 0 ? sl_caches_before(caches, first) : 0;
    const size_t skipped = moves ? 0 : (size_t)begin; /* keys that no row sees */
    const bool own = sl_caches_have(caches, piece->position);
    float *const o = (float *)sl_at(context, &call->cached->o) + piece->row * columns;
    float *const logsum = (float *)sl_at(context, &call->cached->logsum) + piece->row * heads;
    struct sl_attention shape = *call->shape;
    const char *rows[3];
    if (!own && begin >= seen) {
        context->kernels->fill(piece->rows * columns, 0.0f, o);
        context->kernels->fill(piece->rows * heads, -INFINITY, logsum);
        return;
    }
    for (int i = 0; i < 3; i++) {
        const int number = i == 0 ? call->cached->k : i == 1 ? call->cached->v : call->cached->k_rope;
        rows[i] = i == 2 && !shape.rope
                      ? NULL
                      : (const char *)sl_cache_rows(caches, number, sl_cached_sequence(context) + piece->sequence) +
                            skipped * caches->cache[number].columns * size;
    }
    shape.sequences = 1;
    shape.queries = piece->rows;
    shape.position = (size_t)seen - skipped;
    shape.key_rows = (size_t)(own ? caches->positions : seen) - skipped;
    shape.keys = caches->storage;
    shape.window = moves ? (size_t)(seen - begin + 1) : 0;
    context->kernels->attention->forward(&shape, call->q + piece->row * columns,
                                         shape.rope ? call->q_rope + piece->row * heads * shape.rope : NULL, rows[0],
                                         rows[1], rows[2], sl_out_f32(o), logsum);
}

/* Merges the coordinates' results in their order, so that all coordinates have the same bits. */
static void merge_piece(const struct divided *call, const struct piece *piece, float *o, float *logsum) {
    const struct sl_context *context = call->context;
    const size_t heads = call->shape->heads, columns = heads * call->shape->width, rows = (size_t)context->rows;
    const float *const all_o = sl_at(context, &call->cached->all_o);
    const float *const all_logsum = sl_at(context, &call->cached->all_logsum);
    struct sl_attention shape = *call->shape;
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

static int attend_divided(struct sl_context *context, const struct divided *call, struct sl_out to, float *logsum) {
    const struct sl_group *peers = sl_group_of(context, call->cached->group);
    const size_t rows = (size_t)context->rows, heads = call->shape->heads, columns = heads * call->shape->width;
    const struct sl_cached *cached = call->cached;
    for (struct piece piece = {0}; next_piece(call, &piece);) attend_piece(call, &piece);
    SL_TRY(sl_communicate(context, sl_describe_all_gather(peers, SL_F32, sl_at(context, &cached->o),
                                                          sl_at(context, &cached->all_o), rows * columns)));
    SL_TRY(sl_communicate(context, sl_describe_all_gather(peers, SL_F32, sl_at(context, &cached->logsum),
                                                          sl_at(context, &cached->all_logsum), rows * heads)));
    float *const o = sl_out_floats(to);
    for (struct piece piece = {0}; next_piece(call, &piece);) merge_piece(call, &piece, o, logsum);
    sl_context_settle(context, columns, to);
    return SL_OK;
}

int sl_attend_cached(struct sl_context *context, const struct sl_attention *all, const struct sl_cached *cached,
                     const float *q, const float *q_rope, struct sl_out o, float *logsum) {
    const struct sl_caches *caches = context->caches;
    const size_t columns = all->heads * all->width, rotated = all->heads * all->rope;
    if (cached->group >= 0)
        return attend_divided(context, &(struct divided){context, all, cached, q, q_rope}, o, logsum);
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
