/* leaves.h - sums over an axis of channels whose bits do not depend on how many coordinates that has.
 *
 * The axis has LEAVES (sl_pipeline_options), 1, 2, 4, ..., each with its share of the columns, or of the tokens of a
 * sequence. A coordinate has equally many neighbouring ones, and computes what each adds to a sum by itself, in
 * products that have a leaf's shapes. It adds these up in the order of a tree: neighbours, then the sums of neighbours.
 * psum_tree goes on with the same tree over coordinates. */
#ifndef SL_LAYERS_MODULES_LEAVES_H
#define SL_LAYERS_MODULES_LEAVES_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* Where sums of N floats wait for others: the first at FIRST, which gets the sum of all, others in ROOM. */
struct sl_tree {
    const struct sl_kernels *kernels;
    size_t n;
    float *first;
    float *room; /* [sl_tree_levels, n]; not read of one leaf */
};

/* Arrays that LEAVES need beside the first. */
size_t sl_tree_levels(int leaves);
/* Where the summand of leaf number LEAF goes; leaves come in their order. */
float *sl_tree_summand(const struct sl_tree *tree, int leaf);
/* It is there: what waits for it is added. */
void sl_tree_add(const struct sl_tree *tree, int leaf);

/* The first of LEAVES blocks of N floats, any number, which lie one after another, becomes the sum of all, in the order
 * of psum_tree; the others are changed, too. */
void sl_tree_blocks(const struct sl_kernels *kernels, int leaves, size_t n, float *blocks);

SL_END_C
#endif
