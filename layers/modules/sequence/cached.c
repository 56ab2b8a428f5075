/* cached.c - positions of a call's tokens, and rows of caches. */
#include "layers/modules/sequence/cached.h"
#include "layers/modules/sequence/context.h"

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
    if (caches && caches->positions < positions) positions = caches->positions;
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
        const size_t to = ((size_t)s * positions + (size_t)sl_first_position(context, s)) * columns + first;
        abreast = tokens == 1 ? sl_abreast(context, s) : 1;
        if (tokens == 1)
            put(context, (size_t)abreast, count, from, stride, cached, to, positions * columns);
        else
            put(context, tokens, count, from, stride, cached, to, columns);
    }
    return cached;
}
