/* cached.h - positions of a call's tokens, their rows in caches, attention to these, and attention by several
 * threads. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_CACHED_H
#define SL_LAYERS_MODULES_SEQUENCE_CACHED_H

#include "layers/modules/kept.h"
#include "layers/modules/module.h"

SL_BEGIN_C

/* Returns SL_BAD_INPUT if the plan's rows are not whole sequences, or if sequences are longer than POSITIONS. */
int sl_plan_positions(const struct sl_plan *plan, int positions);

/* Position of the first row of the call's sequence SEQUENCE. */
static inline int sl_first_position(const struct sl_context *context, int sequence) {
    return context->positions ? context->positions[sequence] : context->position;
}
/* Positions of tokens in their documents, from the call's sequence SEQUENCE on; NULL if each sequence is one
 * document. */
static inline const int32_t *sl_places_from(const struct sl_context *context, int sequence) {
    const int32_t *places = context->batch.places;
    return places ? places + (size_t)sequence * (size_t)context->sequence : NULL;
}
/* Number of the call's sequences from FIRST on with the same position, which share a kernel call. */
int sl_abreast(const struct sl_context *context, int first);
/* Returns SL_BAD_INPUT if the call's tokens lie beyond POSITIONS, or if the caches have no memory for them. */
int sl_check_positions(const struct sl_module *module, struct sl_context *context, int positions);

/* Number of the call's first sequence in the caches. */
int sl_cached_sequence(const struct sl_context *context);
/* Appends ROWS, the new tokens' rows of the call's sequences, to columns [FIRST, FIRST + COUNT) of cache NUMBER;
 * returns the cache's rows of the first sequence. STRIDE: elements from one of ROWS to the next. */
const void *sl_cache_append(const struct sl_context *context, int number, size_t first, size_t count, const float *rows,
                            size_t stride);

/* Attention to cached tokens. */
struct sl_cached {
    int k, v, k_rope; /* numbers of caches; k_rope is read only with rope */
    /* If positions are divided (struct sl_caches), each coordinate attends to its own, and the results are merged: */
    int group;                                    /* -1: they are not */
    struct sl_place o, logsum, all_o, all_logsum; /* this coordinate's results, and those of all */
};
/* Plans attention with SHAPE's heads to the caches of CACHED, whose numbers are set. */
int sl_plan_cached(struct sl_plan *plan, const struct sl_attention *shape, struct sl_cached *cached);
/* Writes attention of the call's Q and Q_ROPE, with SHAPE's heads, to all cached tokens up to their own, which have
 * been appended. LOGSUM is overwritten. */
int sl_attend_cached(struct sl_context *context, const struct sl_attention *shape, const struct sl_cached *cached,
                     const float *q, const float *q_rope, struct sl_out o, float *logsum);

/* Rows of a call, from ROW on, and keys of this coordinate that they see, if positions are divided. */
struct sl_cached_part {
    int sequence; /* in the caches */
    size_t row, rows;
    size_t first;          /* this coordinate's first key that a row sees */
    size_t position, keys; /* row t sees the keys [0, position + t] from there on, but none from KEYS on */
    size_t window;         /* as in struct sl_attention */
};
/* Writes attention of PART to O [rows, heads * width] and LOGSUM [heads, rows]. */
typedef void sl_attend_part(const struct sl_context *context, const void *arg, const struct sl_cached_part *part,
                            float *o, float *logsum);
/* Writes attention as sl_attend_cached does, for divided positions, and in any form of caches: calls ATTEND for all
 * parts, and merges the coordinates' results. */
int sl_attend_parts(struct sl_context *context, const struct sl_attention *shape, const struct sl_cached *cached,
                    sl_attend_part *attend, const void *arg, struct sl_out o, float *logsum);

/* Type in which attention's backward of SHAPE reads its saved inputs, such as KEPT: the saved type if its kernels can,
 * otherwise SL_F32. */
enum sl_dtype sl_attention_stored(const struct sl_context *context, const struct sl_attention *shape,
                                  const struct sl_kept *kept);
/* Returns whether attention of SHAPE, without caches, reads and writes only bf16 if arrays have bf16 copies. */
bool sl_attention_alone(const struct sl_plan *plan, const struct sl_attention *shape);
/* Plans COUNT elements for each microbatch, read only by attention of SHAPE, in forward and in I. If attention rounds
 * them to bf16 as it reads them, they are saved as bf16 in any storage. */
int sl_plan_attended(struct sl_plan *plan, const struct sl_attention *shape, size_t count, struct sl_kept *kept);
/* Plans COUNT elements for each microbatch, the gradient of attention's output: floats at VALUES or, if attention READS
 * bf16 and products can leave it, bf16 alone. */
void sl_plan_output_gradient(struct sl_plan *plan, size_t count, const struct sl_place *values, bool reads,
                             struct sl_kept *kept);
/* Calls attention's forward (layers/kernels/attention/attention.h), by the context's crew if there is one, with the
 * same bits. With a crew, LOGSUM has the same size, but its order depends on the threads. */
void sl_attend(const struct sl_context *context, const struct sl_attention *shape, const void *q, const void *q_rope,
               const void *k, const void *v, const void *k_rope, struct sl_out o, float *logsum);

SL_END_C
#endif
