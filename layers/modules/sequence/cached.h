/* cached.h - which tokens a call of attention has, where caches keep them, and attention by several threads. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_CACHED_H
#define SL_LAYERS_MODULES_SEQUENCE_CACHED_H

#include "layers/modules/kept.h"
#include "layers/modules/module.h"

SL_BEGIN_C

/* SL_BAD_INPUT if the plan's rows are no whole sequences, or these are longer than POSITIONS. */
int sl_plan_positions(const struct sl_plan *plan, int positions);

/* The position of the first row of the call's sequence SEQUENCE. */
static inline int sl_first_position(const struct sl_context *context, int sequence) {
    return context->positions ? context->positions[sequence] : context->position;
}
/* The places of tokens in their documents, from the call's sequence SEQUENCE on; NULL where a sequence is one. */
static inline const int32_t *sl_places_from(const struct sl_context *context, int sequence) {
    const int32_t *places = context->batch.places;
    return places ? places + (size_t)sequence * (size_t)context->sequence : NULL;
}
/* Sequences of the call from FIRST on that have one position, and go through a kernel together. */
int sl_abreast(const struct sl_context *context, int first);
/* SL_BAD_INPUT if the call's tokens lie beyond POSITIONS, or the caches have no room for them. */
int sl_check_positions(const struct sl_module *module, struct sl_context *context, int positions);

/* The sequence in the caches with which the call begins. */
int sl_cached_sequence(const struct sl_context *context);
/* Appends ROWS, the new tokens' of the call's sequences, to columns [FIRST, FIRST + COUNT) of cache NUMBER; returns the
 * rows of its first sequence. STRIDE: from one of ROWS to the next. */
const void *sl_cache_append(const struct sl_context *context, int number, size_t first, size_t count, const float *rows,
                            size_t stride);

/* How attention's backward of SHAPE reads its inputs, of which KEPT is one: as they are kept, if its kernels can. */
enum sl_dtype sl_attention_stored(const struct sl_context *context, const struct sl_attention *shape,
                                  const struct sl_kept *kept);
/* Whether attention of SHAPE, without caches, reads and leaves bf16 alone where it lies so. */
bool sl_attention_alone(const struct sl_plan *plan, const struct sl_attention *shape);
/* KEPT has COUNT elements for each microbatch, which attention of SHAPE alone reads, in forward and in I: where that
 * rounds them to bf16 as it reads them, they are kept so, whatever the storage is. */
int sl_plan_attended(struct sl_plan *plan, const struct sl_attention *shape, size_t count, struct sl_kept *kept);
/* Attention's forward (layers/kernels/attention/attention.h) by the context's crew, too, with the same bits. Where
 * there is one, LOGSUM has the size that it has there, and its order depends on the threads. */
void sl_attend(const struct sl_context *context, const struct sl_attention *shape, const void *q, const void *q_rope,
               const void *k, const void *v, const void *k_rope, float *o, float *logsum);

SL_END_C
#endif
