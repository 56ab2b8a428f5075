/* leaf_columns.h - the products of a kernel whose columns are those of several leaves (layers/modules/leaves.h).
 *
 * A leaf has equally many columns of each segment of y: these are SLICES of y and of the kernel, and each has products
 * of its own. dx is the sum over slices, y and the kernel's gradient have a part of each. leaf_products.h is the same
 * for a kernel's rows. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_LEAF_COLUMNS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_LEAF_COLUMNS_H

#include "layers/modules/feedforward/products.h"

SL_BEGIN_C

struct sl_leaf_columns {
    int count;               /* slices of this coordinate; with one, products are as without leaves */
    size_t segments, width;  /* of y; columns of a slice */
    size_t in;               /* columns of x */
    struct sl_place kernel;  /* [in, width]: a slice of the kernel, or of its gradient */
    struct sl_place packed;  /* [rows, width]: a slice of y, or of dy */
    struct sl_place waiting; /* [levels, rows, in]: sums of dx's summands that wait for others */
};

/* For the module that is being planned, whose x has IN columns, and whose y has OUT in SEGMENTS: LEAVES as
 * sl_plan_leaves. Products are then those of a kernel [IN, width]. SL_BAD_INPUT if bf16 cannot be cut so. */
int sl_leaf_columns_plan(struct sl_leaf_columns *columns, struct sl_plan *plan, int leaves, int in, int out,
                         int segments);

/* Y [rows, out] = X [rows, in] KERNEL, which is as products->kernel; X is an operand. */
int sl_leaf_columns_forward(struct sl_context *context, const struct sl_leaf_columns *columns,
                            const struct sl_products *products, const void *x, const void *kernel, float *y);
/* DX [rows, in] = DY [rows, out] KERNEL^T. */
int sl_leaf_columns_input_gradient(struct sl_context *context, const struct sl_leaf_columns *columns,
                                   const struct sl_products *products, const float *dy, const void *kernel, float *dx);
/* GRADIENT [in, out] (+)= X^T DY, of the context's microbatches; X by sl_products_kept, DY as W is given it, bf16 if
 * HALF. */
int sl_leaf_columns_weight_gradient(struct sl_context *context, const struct sl_leaf_columns *columns,
                                    const struct sl_products *products, const void *x, const void *dy, bool half,
                                    float *gradient);

SL_END_C
#endif
