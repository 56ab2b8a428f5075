/* affine.c - x kernel + bias and its gradients, for the modules that are made of them. */
#include "layers/affine.h"

#include <math.h>

#include "spmd/device.h"

enum { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT }; /* products */
enum { X, DY };                                    /* workspace: of a group's rows, rounded */

/* The standard deviation of a standard normal cut off at -2 and 2. */
#define TRUNCATED_DEVIATION 0.87962566103423978f

static int plan_products(struct sl_module *module, struct sl_plan *plan, enum sl_epilogue epilogue) {
    const int rows = plan->rows, group_rows = rows * plan->group, in = module->in, out = module->out;
    module->keeps_input = module->keeps_gradient = true;
    if (plan->precision == SL_BF16) {
        sl_plan_rounded_values(plan);
        module->workspace[X] = sl_plan_workspace(plan, (size_t)group_rows * (size_t)in * sizeof(uint16_t));
        module->workspace[DY] = sl_plan_workspace(plan, (size_t)group_rows * (size_t)out * sizeof(uint16_t));
    }
    SL_TRY(sl_gemm_plan(&module->gemm[FORWARD], plan->gemm, plan->precision, rows, out, in, false, false, epilogue,
                        plan->error));
    SL_TRY(sl_gemm_plan(&module->gemm[INPUT_GRADIENT], plan->gemm, plan->precision, rows, in, out, false, true,
                        SL_EPILOGUE_NONE, plan->error));
    return sl_gemm_plan(&module->gemm[WEIGHT_GRADIENT], plan->gemm, plan->precision, in, out, group_rows, true, false,
                        SL_EPILOGUE_NONE, plan->error);
}

int sl_affine_plan(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2], const char *kernel_spec,
                   const char *bias_spec, enum sl_epilogue epilogue) {
    /* lecun normal: variance 1 / in; in float and in this order, as JAX */
    const float scale = sqrtf(1.0f / (float)kernel[0]) / TRUNCATED_DEVIATION;
    module->parameter[SL_AFFINE_KERNEL] =
        sl_plan_parameter_sharded(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 2, kernel, kernel_spec);
    if (module->parameter[SL_AFFINE_KERNEL] < 0) return plan->error->status;
    module->parameter[SL_AFFINE_BIAS] =
        sl_plan_parameter_sharded(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &kernel[1], bias_spec);
    if (module->parameter[SL_AFFINE_BIAS] < 0) return plan->error->status;
    return plan_products(module, plan, epilogue);
}

static bool rounds(const struct sl_module *module) { return module->gemm[FORWARD].dtype == SL_BF16; }

static const void *kernel_operand(const struct sl_module *module, const struct sl_context *context) {
    if (!rounds(module)) return sl_value(module, context, SL_AFFINE_KERNEL);
    return sl_rounded_value(module, context, SL_AFFINE_KERNEL);
}

/* X [n] as the products take it, where need be in workspace number BUFFER. */
static const void *operand(const struct sl_module *module, const struct sl_context *context, int buffer, size_t n,
                           const float *x) {
    if (!rounds(module)) return x;
    uint16_t *rounded = (uint16_t *)(void *)(context->workspace + module->workspace[buffer]);
    context->kernels->round_bf16(n, x, rounded);
    return rounded;
}

static int multiply(const struct sl_module *module, struct sl_context *context, int product, const void *a,
                    const void *b, const float *bias, bool accumulate, float *c) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_PRODUCTS);
    const int status = sl_gemm_execute(&module->gemm[product], a, b, bias, accumulate, c, context->queue);
    sl_profile_end(context->profile, before);
    if (status == SL_OK || sl_device.settle(&context->self->error)) return status; /* a queue says why */
    return sl_fail(context->self, status, "no memory for a matrix product");
}

int sl_affine_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const void *a = operand(module, context, X, (size_t)context->rows * (size_t)module->in, x);
    return multiply(module, context, FORWARD, a, kernel_operand(module, context),
                    sl_value(module, context, SL_AFFINE_BIAS), false, y);
}

int sl_affine_backward_input(const struct sl_module *module, struct sl_context *context, const float *dy, float *dx) {
    const void *a = operand(module, context, DY, (size_t)context->rows * (size_t)module->out, dy);
    return multiply(module, context, INPUT_GRADIENT, a, kernel_operand(module, context), NULL, false, dx);
}

int sl_affine_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                              const float *dy) {
    const size_t rows = (size_t)context->rows * (size_t)context->group;
    const void *a = operand(module, context, X, rows * (size_t)module->in, x);
    const void *b = operand(module, context, DY, rows * (size_t)module->out, dy);
    SL_TRY(multiply(module, context, WEIGHT_GRADIENT, a, b, NULL, context->accumulate,
                    sl_gradient(module, context, SL_AFFINE_KERNEL)));
    context->kernels->column_sums(rows, (size_t)module->out, dy, context->accumulate,
                                  sl_gradient(module, context, SL_AFFINE_BIAS));
    return SL_OK;
}
