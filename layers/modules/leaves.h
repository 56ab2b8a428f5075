/* leaves.h - sums over an axis of channels with bits that do not depend on the number of coordinates.
 *
 * The axis has LEAVES (sl_pipeline_options), 1, 2, 4, ..., each with its share of the columns, or of the tokens of a
 * sequence. A coordinate has equally many neighbouring leaves, and computes each leaf's part of a sum by itself, in
 * products of a leaf's shapes. It adds these parts in tree order: neighbours, then the sums of neighbours. psum_tree
 * continues the same tree over coordinates. */
#ifndef SL_LAYERS_MODULES_LEAVES_H
#define SL_LAYERS_MODULES_LEAVES_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* Sums of N floats waiting for others: the first at FIRST, which becomes the total, others in ROOM. */
struct sl_tree {
    const struct sl_kernels *kernels;
    size_t n;
    float *first;
    float *room; /* [sl_tree_levels, n]; unused with one leaf */
};

/* Number of arrays in ROOM for LEAVES leaves. */
size_t sl_tree_levels(int leaves);
/* Address for the summand of leaf number LEAF; leaves come in their order. */
float *sl_tree_summand(const struct sl_tree *tree, int leaf);
/* Adds the summand of LEAF, now written, to the sums that wait for it. */
void sl_tree_add(const struct sl_tree *tree, int leaf);

/* Sums LEAVES consecutive blocks of N floats into the first one, in the order of psum_tree; LEAVES may be any number.
 * The other blocks change, too. */
void sl_tree_blocks(const struct sl_kernels *kernels, int leaves, size_t n, float *blocks);

SL_END_C
#endif
