/* context_internal.h - functions shared by the files of attention to divided sequences (context.h). */
#ifndef SL_LAYERS_MODULES_SEQUENCE_CONTEXT_INTERNAL_H
#define SL_LAYERS_MODULES_SEQUENCE_CONTEXT_INTERNAL_H

#include "layers/modules/sequence/context.h"

/* Number of sequences in a coordinate's ROWS. SEQUENCE: rows that modules' calls see as one sequence. */
static inline int sl_context_sequences(struct sl_cut cut, int rows, int sequence) {
    return rows / sequence / sl_cut_own_blocks(cut);
}

/* context_moves.c */

/* Copies rows of BYTES each, block by block, from coordinates' order at MOVED to the order of positions at WHOLE; if
 * BACK, from WHOLE to MOVED. */
void sl_context_order(const struct sl_context *context, size_t bytes, bool back, char *moved, char *whole);
/* Gathers array I, of DTYPE, from all coordinates to its place. A single coordinate has all rows in order already. */
int sl_context_gather(struct sl_context *context, const struct sl_context_keys *keys, int i, enum sl_dtype dtype,
                      const void *own);
/* Sums array I's gradients over the coordinates, and writes the sums for this coordinate's rows to OWN. */
int sl_context_scatter(struct sl_context *context, const struct sl_context_keys *keys, int i, float *own);

/* Writes a complete result, the floats of TO [rows, COLUMNS], in the form of TO. */
void sl_context_settle(const struct sl_context *context, size_t columns, struct sl_out to);

/* context_heads.c */

int sl_plan_context_heads(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys);
int sl_context_heads_forward(struct sl_context *context, const struct sl_context_keys *keys,
                             const struct sl_attention *shape, const struct sl_context_call *call);
int sl_context_heads_backward(struct sl_context *context, const struct sl_context_keys *keys,
                              const struct sl_attention *shape, const struct sl_context_call *call);

/* Whether ROWS queries from ROW on see all keys before them from the one that lies POSITION keys before the first
 * query: then attention needs no PLACES, and takes less time. */
static inline bool sl_context_sees_all(const int32_t *places, size_t row, size_t rows, size_t position) {
    return !places || (size_t)places[row + rows - 1] >= position + rows - 1;
}

/* context_ring.c */

/* Whether block BLOCK of a sequence, which sees no key before position EARLIEST, sees keys of block KEYS. Blocks have
 * ROWS rows. */
static inline bool sl_context_sees(int rows, int64_t earliest, int block, int keys) {
    return keys <= block && ((int64_t)keys + 1) * rows > earliest;
}
int sl_plan_context_ring(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys);
int sl_context_ring_forward(struct sl_context *context, const struct sl_context_keys *keys,
                            const struct sl_attention *shape, const struct sl_context_call *call);
int sl_context_ring_backward(struct sl_context *context, const struct sl_context_keys *keys,
                             const struct sl_attention *shape, const struct sl_context_call *call);

#endif
