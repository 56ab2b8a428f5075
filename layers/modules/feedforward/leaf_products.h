/* leaf_products.h - the products of a kernel whose rows are those of several leaves (layers/modules/leaves.h).
 *
 * A leaf has equally many columns of each segment of x, and its rows of the kernel: these are SLICES of both, and each
 * has products of its own. y is the sum over slices, dx and the kernel's gradient have a part of each. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_LEAF_PRODUCTS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_LEAF_PRODUCTS_H

#include "layers/modules/feedforward/products.h"

SL_BEGIN_C

struct sl_leaf_products {
    int count;               /* slices of this coordinate; with one, products are as without leaves */
    size_t segments, width;  /* of x; columns of a slice */
    size_t out;              /* columns of y */
    struct sl_place packed;  /* [rows, width]: a slice of x, or of dx */
    struct sl_place waiting; /* [levels, rows, out]: sums of slices that wait for others */
};

/* For the module that is being planned, whose x has IN columns in SEGMENTS, and whose y has OUT: LEAVES as
 * sl_plan_leaves. Products are then those of a kernel [width, OUT]. SL_BAD_INPUT if bf16 cannot be cut so. */
int sl_leaf_products_plan(struct sl_leaf_products *leaves, struct sl_plan *plan, int count, int in, int segments,
                          int out);

/* Y [rows, out] = X [rows, in] KERNEL, which is as products->kernel. */
int sl_leaf_products_forward(struct sl_context *context, const struct sl_leaf_products *leaves,
                             const struct sl_products *products, const float *x, const void *kernel, float *y);
/* DX [rows, in] = DY KERNEL^T; DY is an operand. */
int sl_leaf_products_input_gradient(struct sl_context *context, const struct sl_leaf_products *leaves,
                                    const struct sl_products *products, const void *dy, const void *kernel, float *dx);
/* GRADIENT [in, out] (+)= X^T DY; X as it is kept, DY by sl_products_kept or an operand. */
int sl_leaf_products_weight_gradient(struct sl_context *context, const struct sl_leaf_products *leaves,
                                     const struct sl_products *products, const float *x, const void *dy,
                                     bool accumulate, float *gradient);

SL_END_C
#endif
