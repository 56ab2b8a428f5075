/* leaf_columns.h - products of a kernel with columns of several leaves (layers/modules/leaves.h).
 *
 * A leaf has equally many columns of each segment of y: these are slices of y and of the kernel, and each has products
 * of its own. dx is the sum over slices; y and the kernel's gradient have a part of each. leaf_products.h is the same
 * for a kernel's rows. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_LEAF_COLUMNS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_LEAF_COLUMNS_H

#include "layers/modules/feedforward/products.h"

SL_BEGIN_C

struct sl_leaf_columns {
    int count;               /* slices of this coordinate; 1: products as without leaves */
    size_t segments, width;  /* segments of y; columns of a slice */
    size_t in;               /* columns of x */
    struct sl_place kernel;  /* [in, width]: a slice of the kernel or of its gradient */
    struct sl_place packed;  /* [rows, width]: a slice of y or of dy */
    struct sl_place waiting; /* [levels, rows, in]: sums for dx waiting for others */
};

/* Plans for the module being planned: x has IN columns, y has OUT in SEGMENTS, and LEAVES is the result of
 * sl_plan_leaves. Products are then planned for a kernel [IN, width]. Returns SL_BAD_INPUT if bf16 rows cannot be cut
 * into such slices. */
int sl_leaf_columns_plan(struct sl_leaf_columns *columns, struct sl_plan *plan, int leaves, int in, int out,
                         int segments);

/* Y [rows, out] = X [rows, in] KERNEL. X is an operand; KERNEL has the type products->kernel. */
int sl_leaf_columns_forward(struct sl_context *context, const struct sl_leaf_columns *columns,
                            const struct sl_products *products, const void *x, const void *kernel, float *y);
/* DX [rows, in] = DY [rows, out] KERNEL^T. */
int sl_leaf_columns_input_gradient(struct sl_context *context, const struct sl_leaf_columns *columns,
                                   const struct sl_products *products, struct sl_given dy, const void *kernel,
                                   float *dx);
/* GRADIENT [in, out] (+)= X^T DY over the context's microbatches. X is an operand; DY is W's argument. */
int sl_leaf_columns_weight_gradient(struct sl_context *context, const struct sl_leaf_columns *columns,
                                    const struct sl_products *products, const void *x, struct sl_given dy,
                                    float *gradient);

SL_END_C
#endif
