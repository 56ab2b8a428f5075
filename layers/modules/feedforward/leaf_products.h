/* leaf_products.h - products of a kernel with rows of several leaves (layers/modules/leaves.h).
 *
 * A leaf has equally many columns of each segment of x, and its rows of the kernel: these are slices of both, and each
 * has products of its own. y is the sum over slices; dx and the kernel's gradient have a part of each. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_LEAF_PRODUCTS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_LEAF_PRODUCTS_H

#include "layers/modules/feedforward/products.h"

SL_BEGIN_C

struct sl_leaf_products {
    int count;               /* slices of this coordinate; 1: products as without leaves */
    size_t segments, width;  /* segments of x; columns of a slice */
    size_t out;              /* columns of y */
    struct sl_place packed;  /* [rows, width]: a slice of x or of dx */
    struct sl_place waiting; /* [levels, rows, out]: sums of slices waiting for others */
};

/* Plans for the module being planned: x has IN columns in SEGMENTS, y has OUT, and COUNT is the result of
 * sl_plan_leaves. Products are then planned for a kernel [width, OUT]. Returns SL_BAD_INPUT if bf16 rows cannot be cut
 * into such slices. */
int sl_leaf_products_plan(struct sl_leaf_products *leaves, struct sl_plan *plan, int count, int in, int segments,
                          int out);

/* Y [rows, out] = X [rows, in] KERNEL, which has the type products->kernel. */
int sl_leaf_products_forward(struct sl_context *context, const struct sl_leaf_products *leaves,
                             const struct sl_products *products, struct sl_given x, const void *kernel, float *y);
/* DX [rows, in] = DY KERNEL^T; DY is an operand. */
int sl_leaf_products_input_gradient(struct sl_context *context, const struct sl_leaf_products *leaves,
                                    const struct sl_products *products, const void *dy, const void *kernel, float *dx);
/* GRADIENT [in, out] (+)= X^T DY; DY is an operand. */
int sl_leaf_products_weight_gradient(struct sl_context *context, const struct sl_leaf_products *leaves,
                                     const struct sl_products *products, struct sl_given x, const void *dy,
                                     bool accumulate, float *gradient);

SL_END_C
#endif
