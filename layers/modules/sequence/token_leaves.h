/* token_leaves.h - the order of tokens on a coordinate with several leaves, each with a share of every sequence.
 *
 * Tokens of a call are ordered by microbatch, and within it by leaf, so a leaf's tokens of a microbatch form a product
 * as on a coordinate with one leaf. W takes a leaf's tokens of all microbatches together. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_TOKEN_LEAVES_H
#define SL_LAYERS_MODULES_SEQUENCE_TOKEN_LEAVES_H

#include "layers/modules/sequence/token_table.h"

SL_BEGIN_C

/* TO = FROM [own tokens of the call, COLUMNS], reordered in each microbatch from sequence by sequence to leaf by leaf;
 * BACK: the inverse. */
void sl_tokens_by_leaf(const struct sl_token_table *table, const struct sl_context *context, size_t columns, bool back,
                       const float *from, float *to);
/* TO = FROM [own tokens of W's group, COLUMNS], leaf by leaf over all microbatches. */
void sl_tokens_group_by_leaf(const struct sl_token_table *table, const struct sl_context *context, size_t columns,
                             const float *from, float *to);
/* Writes labels to PLACE, in the order of a call or, if GROUPED, of W; returns their address. */
const int32_t *sl_leaf_labels(const struct sl_module *module, const struct sl_context *context,
                              const struct sl_place *place, bool grouped);

SL_END_C
#endif
