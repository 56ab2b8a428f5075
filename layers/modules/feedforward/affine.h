/* affine.h - what modules that compute x kernel + bias are made of: dense, and its tensor-parallel shards.
 *
 * In bf16 the products' operands are rounded: the kernel whenever it has changed, by its owner; x and dy here. The
 * module's parameters 0 and 1 are its kernel and bias, and all of its workspace and products belong to these
 * functions. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_AFFINE_H
#define SL_LAYERS_MODULES_FEEDFORWARD_AFFINE_H

#include "layers/modules/module.h"

SL_BEGIN_C

enum { SL_AFFINE_KERNEL, SL_AFFINE_BIAS };                                       /* parameters */
enum { SL_AFFINE_FORWARD, SL_AFFINE_INPUT_GRADIENT, SL_AFFINE_WEIGHT_GRADIENT }; /* products */
enum { SL_AFFINE_X, SL_AFFINE_DY }; /* workspace: of a group's rows, rounded */

/* The scale of a truncated normal of variance 1 / IN (LeCun et al. 1998). */
float sl_lecun_normal(size_t in);

/* Declares kernel [in, out], lecun-normal by the whole one's rows KERNEL[0], and bias [KERNEL[1]], zeros, sharded as
 * the specs say ("": not at all); plans the module's own products. EPILOGUE is the forward product's. */
int sl_affine_plan(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2], const char *kernel_spec,
                   const char *bias_spec, enum sl_epilogue epilogue);

/* y [rows, out] = x [rows, in] kernel, plus the bias where the plan has that epilogue. */
int sl_affine_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
/* dx = dy kernel^T */
int sl_affine_backward_input(const struct sl_module *module, struct sl_context *context, const float *dy, float *dx);
/* dkernel (+)= x^T dy, one product over the rows of the whole group; dbias (+)= column sums of dy */
int sl_affine_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                              const float *dy);

/* What these are made of, for modules whose products have other operands. Products of x [rows, module->in] and a kernel
 * of OUT columns, and room for rounded operands; the kernel as products take it; X [n] as they
 * take it, where need be rounded into workspace number BUFFER; c (+)= a b (+ bias). */
int sl_affine_plan_products(struct sl_module *module, struct sl_plan *plan, int out, enum sl_epilogue epilogue);
const void *sl_affine_kernel(const struct sl_module *module, const struct sl_context *context);
const void *sl_affine_operand(const struct sl_module *module, const struct sl_context *context, int buffer, size_t n,
                              const float *x);
int sl_affine_multiply(const struct sl_module *module, struct sl_context *context, int product, const void *a,
                       const void *b, const float *bias, bool accumulate, float *c);

SL_END_C
#endif
