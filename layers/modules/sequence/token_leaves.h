/* token_leaves.h - the order of a coordinate's tokens where it has several leaves, each with a share of every sequence.
 *
 * In a call they lie microbatch by microbatch, and in each leaf by leaf: so a leaf's tokens of a microbatch make a
 * product as a coordinate's with one leaf do. W takes a leaf's tokens of all microbatches together. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_TOKEN_LEAVES_H
#define SL_LAYERS_MODULES_SEQUENCE_TOKEN_LEAVES_H

#include "layers/modules/sequence/token_table.h"

SL_BEGIN_C

/* TO = FROM [own tokens of the call, COLUMNS], leaf by leaf in each microbatch instead of sequence by sequence; BACK:
 * the other way. */
void sl_tokens_by_leaf(const struct sl_token_table *table, const struct sl_context *context, size_t columns, bool back,
                       const float *from, float *to);
/* TO = FROM [own tokens of W's group, COLUMNS], leaf by leaf for all microbatches. */
void sl_tokens_group_by_leaf(const struct sl_token_table *table, const struct sl_context *context, size_t columns,
                             const float *from, float *to);
/* The labels at PLACE, in the order of a call; or, if GROUPED, in that of W. */
const int32_t *sl_leaf_labels(const struct sl_module *module, const struct sl_context *context,
                              const struct sl_place *place, bool grouped);

SL_END_C
#endif
