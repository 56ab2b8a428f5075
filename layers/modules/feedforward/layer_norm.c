/* layer_norm.c - normalizes each row over its columns, then scales and shifts them. */
#include "layers/modules/feedforward/norm.h"
#include "layers/modules/kept.h"
#include "layers/modules/modules.h"

enum { SCALE = SL_NORM_FACTOR, BIAS = SL_NORM_SHIFT };

struct layer_norm {
    struct sl_norm norm;
    struct sl_kept normalized; /* [rows, cols] */
    struct sl_place unwanted;  /* dx [rows, cols] that nobody needs */
};

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct layer_norm *own = (struct layer_norm *)module;
    const size_t cols = (size_t)module->in, rows = (size_t)plan->rows;
    SL_TRY(sl_plan_parameter(plan, "scale", SL_INIT_ONES, 0.0f, 1, &cols));
    SL_TRY(sl_plan_parameter(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &cols));
    SL_TRY(sl_plan_kept(plan, rows * cols, SL_UNTIL_INPUT, &own->normalized));
    SL_TRY(sl_plan_array(plan, rows, SL_UNTIL_INPUT, &own->norm.rstd));
    SL_TRY(sl_norm_plan_sums(&own->norm, plan));
    sl_plan_workspace(plan, sl_plan_rows(plan) * cols * sizeof(float), &own->unwanted);
    sl_norm_count(plan, module->in);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct layer_norm *own = (const struct layer_norm *)module;
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in;
    const float *scale = sl_value(module, context, SCALE), *bias = sl_value(module, context, BIAS);
    float *normalized = sl_kept_values(context, &own->normalized), *rstd = sl_at(context, &own->norm.rstd);
    uint16_t *operand = sl_operand_result(context);
    if (operand) {
        context->kernels->operands->layer_norm_forward(rows, cols, x, scale, bias, (float)SL_NORM_EPSILON, normalized,
                                                       rstd, operand);
        context->result->done = true;
    } else {
        context->kernels->layer_norm_forward(rows, cols, x, scale, bias, (float)SL_NORM_EPSILON, normalized, rstd, y);
    }
    sl_keep(context, &own->normalized);
    return SL_OK;
}

/* The same pass over dy that gives dx gives each microbatch's sums for scale and bias: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct layer_norm *own = (const struct layer_norm *)module;
    const size_t cols = (size_t)module->in, microbatches = sl_call_microbatches(context);
    const size_t rows = (size_t)context->rows / microbatches;
    const float *normalized = sl_recall(context, &own->normalized), *rstd = sl_at(context, &own->norm.rstd);
    float *dscale = sl_at(context, &own->norm.sum[SCALE]), *dbias = sl_at(context, &own->norm.sum[BIAS]);
    (void)x;
    if (!dx) dx = sl_at(context, &own->unwanted);
    context->kernels->layer_norm_backward(microbatches, rows, cols, dy, normalized, rstd,
                                          sl_value(module, context, SCALE), sl_added(context, NULL), dx, dscale, dbias);
    return SL_OK;
}

static const struct sl_module_type layer_norm = {.name = "layer_norm",
                                                 .plan = plan,
                                                 .forward = forward,
                                                 .backward_input = backward_input,
                                                 .needs_no_input = true,
                                                 .needs_no_gradient = true,
                                                 .rounds_result = true,
                                                 .adds_in_backward = true,
                                                 .stores = true,
                                                 .backward_weight = sl_norm_backward_weight,
                                                 .spares = true,
                                                 .fuses = true,
                                                 .bytes = sizeof(struct layer_norm)};

struct sl_module *sl_layer_norm(const char *name, int cols) { return sl_module_new(&layer_norm, name, cols, cols); }
