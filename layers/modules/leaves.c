/* leaves.c - sums of 1, 2, 4, ... leaves wait for sums of as many further leaves, like the binary digits of a
 * counter. */
#include "layers/modules/leaves.h"

size_t sl_tree_levels(int leaves) {
    size_t levels = 0;
    while (leaves >>= 1) levels++;
    return levels;
}

static size_t waiting(int leaf) {
    size_t sums = 0;
    for (; leaf; leaf &= leaf - 1) sums++;
    return sums;
}

static float *place(const struct sl_tree *tree, size_t i) { return i ? tree->room + (i - 1) * tree->n : tree->first; }

float *sl_tree_summand(const struct sl_tree *tree, int leaf) { return place(tree, waiting(leaf)); }

/* A sum of two floats has the same bits in either order. */
void sl_tree_add(const struct sl_tree *tree, int leaf) {
    size_t last = waiting(leaf);
    for (int pairs = leaf; pairs & 1; pairs >>= 1, last--)
        tree->kernels->add(tree->n, place(tree, last), place(tree, last - 1));
}

void sl_tree_blocks(const struct sl_kernels *kernels, int leaves, size_t n, float *blocks) {
    for (int step = 1; step < leaves; step *= 2)
        for (int leaf = 0; leaf + step < leaves; leaf += 2 * step)
            kernels->add(n, blocks + (size_t)(leaf + step) * n, blocks + (size_t)leaf * n);
}
