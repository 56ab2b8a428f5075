/* products.h - the three matrix products of a module with a kernel: y = x kernel, dx = dy kernel^T, dkernel = x^T dy.
 *
 * In bf16 the products' operands are rounded: the kernel whenever it has changed, by its owner; x and dy here. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_PRODUCTS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_PRODUCTS_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_products {
    struct sl_gemm forward, input_gradient, weight_gradient;
    struct sl_place x, dy; /* in the workspace: of the rows of the largest product, rounded */
};

struct sl_products_shape {
    enum sl_dtype precision;
    int in, out;               /* of the kernel: it is stored as [in, out], */
    bool transposed;           /* or as [out, in] */
    int rows;                  /* of x and y; of dy and dx */
    int wgrad_rows;            /* of x and dy in the weight gradient's product */
    enum sl_epilogue epilogue; /* of the forward product */
};

/* Plans the products, and those of backward unless plan->forward_only. PRODUCTS may have been planned before. */
int sl_products_plan(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape);
void sl_products_release(struct sl_products *products);

/* Parameter 0 of MODULE, as products take it. */
const void *sl_products_kernel(const struct sl_products *products, const struct sl_module *module,
                               const struct sl_context *context);
/* X [n] as products take it: where need be rounded, at ROOM, which is products->x or products->dy. */
const void *sl_products_operand(const struct sl_products *products, const struct sl_context *context,
                                const struct sl_place *room, size_t n, const float *x);
/* C (+)= A B (+ BIAS, where GEMM has that epilogue), profiled as a product. */
int sl_products_multiply(struct sl_context *context, const struct sl_gemm *gemm, const void *a, const void *b,
                         const float *bias, bool accumulate, float *c);

/* The scale of a truncated normal of variance 1 / IN (LeCun et al. 1998). */
float sl_lecun_normal(size_t in);

SL_END_C
#endif
