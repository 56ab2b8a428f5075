/* affine.c - x kernel + bias and its gradients, for the modules that are made of them. */
#include "layers/modules/feedforward/affine.h"

#include <math.h>

#include "spmd/device/device.h"

/* The standard deviation of a standard normal cut off at -2 and 2. */
#define TRUNCATED_DEVIATION 0.87962566103423978f

/* In float and in this order, as JAX. */
float sl_lecun_normal(size_t in) { return sqrtf(1.0f / (float)in) / TRUNCATED_DEVIATION; }

int sl_affine_plan_products(struct sl_module *module, struct sl_plan *plan, int out, enum sl_epilogue epilogue) {
    const int rows = plan->rows, in = module->in, most = plan->forward_only ? rows : rows * plan->wgrad_group;
    module->keeps_input = module->keeps_gradient = !plan->forward_only;
    if (plan->precision == SL_BF16) {
        sl_plan_rounded_values(plan);
        module->workspace[SL_AFFINE_X] = sl_plan_workspace(plan, (size_t)most * (size_t)in * sizeof(uint16_t));
        if (!plan->forward_only)
            module->workspace[SL_AFFINE_DY] = sl_plan_workspace(plan, (size_t)most * (size_t)out * sizeof(uint16_t));
    }
    SL_TRY(sl_gemm_plan(&module->gemm[SL_AFFINE_FORWARD], plan->gemm, plan->precision, rows, out, in, false, false,
                        epilogue, plan->error));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_gemm_plan(&module->gemm[SL_AFFINE_INPUT_GRADIENT], plan->gemm, plan->precision, rows, in, out, false,
                        true, SL_EPILOGUE_NONE, plan->error));
    return sl_gemm_plan(&module->gemm[SL_AFFINE_WEIGHT_GRADIENT], plan->gemm, plan->precision, in, out, most, true,
                        false, SL_EPILOGUE_NONE, plan->error);
}

int sl_affine_plan(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2], const char *kernel_spec,
                   const char *bias_spec, enum sl_epilogue epilogue) {
    const float scale = sl_lecun_normal(kernel[0]);
    module->parameter[SL_AFFINE_KERNEL] =
        sl_plan_parameter_sharded(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 2, kernel, kernel_spec);
    if (module->parameter[SL_AFFINE_KERNEL] < 0) return plan->error->status;
    module->parameter[SL_AFFINE_BIAS] =
        sl_plan_parameter_sharded(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &kernel[1], bias_spec);
    if (module->parameter[SL_AFFINE_BIAS] < 0) return plan->error->status;
    return sl_affine_plan_products(module, plan, module->out, epilogue);
}

static bool rounds(const struct sl_module *module) { return module->gemm[SL_AFFINE_FORWARD].dtype == SL_BF16; }

const void *sl_affine_kernel(const struct sl_module *module, const struct sl_context *context) {
    if (!rounds(module)) return sl_value(module, context, SL_AFFINE_KERNEL);
    return sl_rounded_value(module, context, SL_AFFINE_KERNEL);
}

const void *sl_affine_operand(const struct sl_module *module, const struct sl_context *context, int buffer, size_t n,
                              const float *x) {
    if (!rounds(module)) return x;
    uint16_t *rounded = (uint16_t *)(void *)(context->workspace + module->workspace[buffer]);
    context->kernels->round_bf16(n, x, rounded);
    return rounded;
}

int sl_affine_multiply(const struct sl_module *module, struct sl_context *context, int product, const void *a,
                       const void *b, const float *bias, bool accumulate, float *c) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_PRODUCTS);
    const int status = sl_gemm_execute(&module->gemm[product], a, b, bias, accumulate, c, context->queue);
    sl_profile_end(context->profile, before);
    if (status == SL_OK || sl_device.settle(&context->self->error)) return status; /* a queue says why */
    return sl_fail(context->self, status, "no memory for a matrix product");
}

int sl_affine_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const void *a = sl_affine_operand(module, context, SL_AFFINE_X, (size_t)context->rows * (size_t)module->in, x);
    return sl_affine_multiply(module, context, SL_AFFINE_FORWARD, a, sl_affine_kernel(module, context),
                              sl_value(module, context, SL_AFFINE_BIAS), false, y);
}

int sl_affine_backward_input(const struct sl_module *module, struct sl_context *context, const float *dy, float *dx) {
    const void *a = sl_affine_operand(module, context, SL_AFFINE_DY, (size_t)context->rows * (size_t)module->out, dy);
    return sl_affine_multiply(module, context, SL_AFFINE_INPUT_GRADIENT, a, sl_affine_kernel(module, context), NULL,
                              false, dx);
}

int sl_affine_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                              const float *dy) {
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    const void *a = sl_affine_operand(module, context, SL_AFFINE_X, rows * (size_t)module->in, x);
    const void *b = sl_affine_operand(module, context, SL_AFFINE_DY, rows * (size_t)module->out, dy);
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_WEIGHT_GRADIENT, a, b, NULL, context->accumulate,
                              sl_gradient(module, context, SL_AFFINE_KERNEL)));
    context->kernels->column_sums(rows, (size_t)module->out, dy, context->accumulate,
                                  sl_gradient(module, context, SL_AFFINE_BIAS));
    return SL_OK;
}
