/* affine.c - y = x kernel + bias and its gradients. */
#include "layers/modules/feedforward/affine.h"

#include "layers/modules/kept.h"

int sl_affine_plan(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2], const char *kernel_spec,
                   const char *bias_spec, enum sl_epilogue epilogue) {
    const float scale = sl_lecun_normal(kernel[0]);
    SL_TRY(sl_plan_parameter_sharded(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 2, kernel, kernel_spec));
    SL_TRY(sl_plan_parameter_sharded(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &kernel[1], bias_spec));
    return sl_affine_plan_products(module, plan, epilogue);
}

static bool is_biased(const struct sl_module *module) { return module->parameters > SL_AFFINE_BIAS; }

int sl_affine_plan_products(struct sl_module *module, struct sl_plan *plan, enum sl_epilogue epilogue) {
    return sl_affine_plan_slices(module, plan, 1, module->in, module->out, epilogue);
}

int sl_affine_plan_slices(struct sl_module *module, struct sl_plan *plan, int count, int in, int out,
                          enum sl_epilogue epilogue) {
    const bool trains = sl_plan_trains(plan, SL_AFFINE_KERNEL), trains_bias = sl_plan_trains(plan, SL_AFFINE_BIAS);
    const struct sl_products_shape shape = {.precision = plan->precision,
                                            .in = in,
                                            .out = out,
                                            .rows = plan->rows,
                                            .wgrad_rows = plan->rows * plan->wgrad_group,
                                            .epilogue = epilogue,
                                            .kept = true,
                                            .own_kernel = count == 1,
                                            .biased = is_biased(module)};
    struct sl_affine *affine = (struct sl_affine *)module;
    module->x.lasts = sl_until_weight_if(trains);
    module->y.lasts = sl_from_input_if(trains || trains_bias);
    sl_load_repeat(plan, count);
    const int status = sl_products_plan(&affine->products, plan, &shape);
    sl_load_repeat(plan, 1);
    if (affine->products.takes_floats) module->follower_dy = SL_F32;
    return status;
}

void sl_affine_release(struct sl_module *module) { sl_products_release(&((struct sl_affine *)module)->products); }

static const struct sl_products *products_of(const struct sl_module *module) {
    return &((const struct sl_affine *)module)->products;
}

int sl_affine_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                      struct sl_result *y) {
    const struct sl_products *products = products_of(module);
    if (context->unread) return SL_OK;
    const void *a = sl_products_operand(products, context, &products->x, sl_module_elements(module, context), x);
    return sl_products_forward(context, products, (int)sl_call_microbatches(context), a,
                               sl_products_kernel(products, module, context),
                               is_biased(module) ? sl_value(module, context, SL_AFFINE_BIAS) : NULL, y);
}

int sl_affine_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                             struct sl_given dy, struct sl_result *dx) {
    const struct sl_products *products = products_of(module);
    (void)x;
    if (!dx) return SL_OK;
    const size_t outputs = (size_t)context->rows * (size_t)module->out;
    const void *a = sl_products_operand(products, context, &products->dy, outputs, dy);
    return sl_products_input_gradient(context, products, (int)sl_call_microbatches(context), a,
                                      sl_products_kernel(products, module, context), false, dx);
}

int sl_affine_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                              struct sl_given dy) {
    const struct sl_products *products = products_of(module);
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    const size_t outputs = rows * (size_t)module->out;
    if (!sl_is_frozen(module, context, SL_AFFINE_KERNEL)) {
        const void *a = sl_products_operand(products, context, &products->x, rows * (size_t)module->in, x);
        const void *b = sl_products_operand(products, context, &products->dy, outputs, dy);
        SL_TRY(sl_products_weight_gradient(context, products, a, b, context->accumulate,
                                           sl_gradient(module, context, SL_AFFINE_KERNEL),
                                           products->sums ? sl_gradient(module, context, SL_AFFINE_BIAS) : NULL));
    }
    if (!is_biased(module) || products->sums || sl_is_frozen(module, context, SL_AFFINE_BIAS)) return SL_OK;
    const struct sl_rows summed = sl_given_rows(dy);
    context->kernels->part_sums(1, rows, (size_t)module->out, summed.at, summed.type != SL_F32, context->accumulate,
                                sl_gradient(module, context, SL_AFFINE_BIAS));
    return SL_OK;
}
