/* layer_norm.c - normalizes each row over its columns, then scales and shifts them. */
#include "layers/modules/modules.h"

enum { SCALE, BIAS };                           /* parameters */
enum { NORMALIZED, RSTD, SCALE_SUM, BIAS_SUM }; /* stash: [rows, cols], [rows], [cols], [cols] a microbatch */
enum { UNWANTED };                              /* workspace: dx [rows, cols] that nobody needs */

static int plan(struct sl_module *module, struct sl_plan *plan) {
    const size_t cols = (size_t)module->in;
    module->parameter[SCALE] = sl_plan_parameter(plan, "scale", SL_INIT_ONES, 0.0f, 1, &cols);
    module->parameter[BIAS] = sl_plan_parameter(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &cols);
    module->stash[NORMALIZED] = sl_plan_stash(plan, cols);
    module->stash[RSTD] = sl_plan_stash(plan, 1);
    module->stash[SCALE_SUM] = sl_plan_stash_flat(plan, cols);
    module->stash[BIAS_SUM] = sl_plan_stash_flat(plan, cols);
    module->workspace[UNWANTED] = sl_plan_workspace(plan, (size_t)plan->rows * cols * sizeof(float));
    for (int i = SCALE; i <= BIAS; i++)
        if (module->parameter[i] < 0) return SL_FAILED;
    for (int i = NORMALIZED; i <= BIAS_SUM; i++)
        if (module->stash[i] < 0) return SL_FAILED;
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    context->kernels->layer_norm_forward((size_t)context->rows, (size_t)module->in, x, sl_value(module, context, SCALE),
                                         sl_value(module, context, BIAS), (float)module->option,
                                         sl_stash_of(context, module->stash[NORMALIZED]),
                                         sl_stash_of(context, module->stash[RSTD]), y);
    return SL_OK;
}

/* The same pass over dy that gives dx gives the microbatch's sums for scale and bias: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    (void)x;
    if (!dx) dx = (float *)(void *)(context->workspace + module->workspace[UNWANTED]);
    context->kernels->layer_norm_backward(
        (size_t)context->rows, (size_t)module->in, dy, sl_stash_of(context, module->stash[NORMALIZED]),
        sl_stash_of(context, module->stash[RSTD]), sl_value(module, context, SCALE), dx,
        sl_stash_of(context, module->stash[SCALE_SUM]), sl_stash_of(context, module->stash[BIAS_SUM]));
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    (void)x, (void)dy;
    const size_t group = (size_t)context->wgrad_group, cols = (size_t)module->in;
    for (int i = SCALE; i <= BIAS; i++)
        context->kernels->column_sums(group, cols, sl_stash_of(context, module->stash[SCALE_SUM + i]),
                                      context->accumulate, sl_gradient(module, context, i));
    return SL_OK;
}

static const struct sl_module_type layer_norm = {"layer_norm", plan, forward, backward_input, backward_weight};

struct sl_module *sl_layer_norm(const char *name, int cols) {
    struct sl_module *module = sl_module_new(&layer_norm, name, cols, cols);
    if (module) module->option = 1e-6;
    return module;
}
