/* affine.h - x kernel + bias and its gradients, for the modules that compute it with their own kernel alone: dense, and
 * its tensor-parallel shards. Such a module's own struct begins with a struct sl_affine. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_AFFINE_H
#define SL_LAYERS_MODULES_FEEDFORWARD_AFFINE_H

#include "layers/modules/feedforward/products.h"

SL_BEGIN_C

enum { SL_AFFINE_KERNEL, SL_AFFINE_BIAS }; /* parameters: also of other modules with a kernel and a bias */

struct sl_affine {
    struct sl_module module;
    struct sl_products products;
};

/* Declares kernel [in, out], lecun-normal by the whole one's rows KERNEL[0], and bias [KERNEL[1]], zeros, sharded as
 * the specs say ("": not at all); plans the module's own products. EPILOGUE is the forward product's. */
int sl_affine_plan(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2], const char *kernel_spec,
                   const char *bias_spec, enum sl_epilogue epilogue);
/* For struct sl_module_type. */
void sl_affine_release(struct sl_module *module);

/* y [rows, out] = x [rows, in] kernel, plus the bias where the plan has that epilogue. */
int sl_affine_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
/* dx = dy kernel^T; does nothing where DX is NULL. */
int sl_affine_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                             const float *dy, float *dx);
/* dkernel (+)= x^T dy, one product over the rows of the whole group; dbias (+)= column sums of dy */
int sl_affine_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                              const float *dy);

SL_END_C
#endif
