/* affine.h - y = x kernel (+ bias) and its gradients, for modules that multiply with their own part of the kernel:
 * dense, the two halves of tensor parallelism, and the factors of adapters. The own struct of such a module begins with
 * a struct sl_affine. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_AFFINE_H
#define SL_LAYERS_MODULES_FEEDFORWARD_AFFINE_H

#include "layers/modules/feedforward/products.h"

SL_BEGIN_C

/* Numbers of the parameters, also in other modules with a kernel and a bias. */
enum { SL_AFFINE_KERNEL, SL_AFFINE_BIAS };

struct sl_affine {
    struct sl_module module;
    struct sl_products products;
};

/* For plan functions. Declares kernel [KERNEL[0], KERNEL[1]], lecun-normal for KERNEL[0] inputs, and bias [KERNEL[1]],
 * zeros. Both shapes are of the whole arrays; KERNEL_SPEC and BIAS_SPEC shard them ("": whole). Plans products of
 * module->in by module->out columns; EPILOGUE is for the forward product. */
int sl_affine_plan(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2], const char *kernel_spec,
                   const char *bias_spec, enum sl_epilogue epilogue);
/* The same without the declarations, for modules with a declared kernel, and perhaps a bias. */
int sl_affine_plan_products(struct sl_module *module, struct sl_plan *plan, enum sl_epilogue epilogue);
/* The same for a kernel in COUNT slices of [IN, OUT], each with products of its own. */
int sl_affine_plan_slices(struct sl_module *module, struct sl_plan *plan, int count, int in, int out,
                          enum sl_epilogue epilogue);
/* Frees the products: the `release` of the module's type. */
void sl_affine_release(struct sl_module *module);

/* y [rows, out] = x [rows, in] kernel, plus the bias if the forward product has that epilogue. */
int sl_affine_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                      struct sl_result *y);
/* dx [rows, in] = dy [rows, out] kernel^T. Does nothing if DX is NULL. */
int sl_affine_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                             struct sl_given dy, struct sl_result *dx);
/* dkernel (+)= x^T dy, one product over the rows of all microbatches of the call; dbias (+)= column sums of dy. */
int sl_affine_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                              struct sl_given dy);

SL_END_C
#endif
