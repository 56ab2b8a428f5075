/* layer_norm.c - normalizes each row over its columns, then scales and shifts them. */
#include "layers/modules/modules.h"

#define EPSILON 1e-6

enum { SCALE, BIAS }; /* parameters */

struct layer_norm {
    struct sl_module module;
    struct sl_place normalized, rstd; /* [rows, cols], [rows] */
    struct sl_place sum[2];           /* of SCALE and BIAS: [cols] a microbatch */
    struct sl_place unwanted;         /* dx [rows, cols] that nobody needs */
};

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct layer_norm *norm = (struct layer_norm *)module;
    const size_t cols = (size_t)module->in, rows = (size_t)plan->rows;
    SL_TRY(sl_plan_parameter(plan, "scale", SL_INIT_ONES, 0.0f, 1, &cols));
    SL_TRY(sl_plan_parameter(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &cols));
    SL_TRY(sl_plan_stash(plan, rows * cols, &norm->normalized));
    SL_TRY(sl_plan_stash(plan, rows, &norm->rstd));
    for (int i = SCALE; i <= BIAS; i++) SL_TRY(sl_plan_stash(plan, cols, &norm->sum[i]));
    sl_plan_workspace(plan, rows * cols * sizeof(float), &norm->unwanted);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct layer_norm *norm = (const struct layer_norm *)module;
    context->kernels->layer_norm_forward((size_t)context->rows, (size_t)module->in, x, sl_value(module, context, SCALE),
                                         sl_value(module, context, BIAS), (float)EPSILON,
                                         sl_at(context, &norm->normalized), sl_at(context, &norm->rstd), y);
    return SL_OK;
}

/* The same pass over dy that gives dx gives the microbatch's sums for scale and bias: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct layer_norm *norm = (const struct layer_norm *)module;
    (void)x;
    if (!dx) dx = sl_at(context, &norm->unwanted);
    context->kernels->layer_norm_backward(
        (size_t)context->rows, (size_t)module->in, dy, sl_at(context, &norm->normalized), sl_at(context, &norm->rstd),
        sl_value(module, context, SCALE), dx, sl_at(context, &norm->sum[SCALE]), sl_at(context, &norm->sum[BIAS]));
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const struct layer_norm *norm = (const struct layer_norm *)module;
    (void)x, (void)dy;
    for (int i = SCALE; i <= BIAS; i++)
        context->kernels->column_sums((size_t)context->wgrad_group, (size_t)module->in, sl_at(context, &norm->sum[i]),
                                      context->accumulate, sl_gradient(module, context, i));
    return SL_OK;
}

static const struct sl_module_type layer_norm = {.name = "layer_norm",
                                                 .plan = plan,
                                                 .forward = forward,
                                                 .backward_input = backward_input,
                                                 .backward_weight = backward_weight,
                                                 .bytes = sizeof(struct layer_norm)};

struct sl_module *sl_layer_norm(const char *name, int cols) { return sl_module_new(&layer_norm, name, cols, cols); }
