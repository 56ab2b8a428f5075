/* layer_norm.c - normalizes each row over its columns, then scales and shifts them. */
#include "layers/modules/feedforward/norm.h"
#include "layers/modules/kept.h"
#include "layers/modules/modules.h"

enum { SCALE = SL_NORM_FACTOR, BIAS = SL_NORM_SHIFT };

struct layer_norm {
    struct sl_norm norm;
    struct sl_kept normalized; /* [rows, cols] */
    struct sl_place unwanted;  /* dx [rows, cols] that nobody needs */
    bool reads_halves;         /* x, dy and summands may lie as bf16 alone, and dx be left so */
};

static const struct layer_norm *own_of(const struct sl_module *module) { return (const struct layer_norm *)module; }

/* On a device whose products leave bf16 alone. Others, and CPUs, read floats, so that sums along a row have the order
 * that compilers choose for these. */
static void plan_halves(struct layer_norm *own, const struct sl_plan *plan) {
    struct sl_module *module = &own->norm.module;
    own->reads_halves =
        sl_kernels_select()->whole_norms && plan->precision == SL_BF16 && sl_gemm_leaves_bf16(plan->gemm);
    module->reads_stored = module->reads_stored_gradient = module->adds_stored_gradient =
        module->leaves_stored_gradient = module->leaves_operand_beside = own->reads_halves;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct layer_norm *own = (struct layer_norm *)module;
    const size_t cols = (size_t)module->in, rows = (size_t)plan->rows;
    SL_TRY(sl_plan_parameter(plan, "scale", SL_INIT_ONES, 0.0f, 1, &cols));
    SL_TRY(sl_plan_parameter(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &cols));
    SL_TRY(sl_plan_kept_halves(plan, rows * cols, SL_UNTIL_INPUT, &own->normalized));
    SL_TRY(sl_plan_array(plan, rows, SL_UNTIL_INPUT, &own->norm.rstd));
    SL_TRY(sl_norm_plan_sums(&own->norm, plan));
    sl_plan_workspace(plan, sl_plan_rows(plan) * cols * sizeof(float), &own->unwanted);
    plan_halves(own, plan);
    sl_norm_count(plan, module->in);
    return SL_OK;
}

static struct sl_norm_rows of_floats(const float *at) { return (struct sl_norm_rows){at, false}; }

/* X [rows, cols], which lies as bf16 alone where the parent has stored it. */
static struct sl_norm_rows rows_of(const struct sl_module *module, const struct sl_context *context, const float *x) {
    const size_t n = (size_t)context->rows * (size_t)module->in;
    const bool halves = own_of(module)->reads_halves && context->storage != SL_F32;
    const uint16_t *stored = halves ? sl_rounded_rows(context, n, x) : NULL;
    return stored ? (struct sl_norm_rows){stored, true} : of_floats(x);
}

/* Where the storage is bf16. */
static void forward_kept(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct layer_norm *own = own_of(module);
    struct sl_result *result = context->result;
    context->kernels->norms->layer_norm_forward(
        (size_t)context->rows, (size_t)module->in, rows_of(module, context, x), sl_value(module, context, SCALE),
        sl_value(module, context, BIAS), (float)SL_NORM_EPSILON, sl_kept_halves(context, &own->normalized),
        sl_at(context, &own->norm.rstd), result && result->unread ? NULL : y, sl_result_settled(result));
    if (result) result->done = true;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct layer_norm *own = own_of(module);
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in;
    const float *scale = sl_value(module, context, SCALE), *bias = sl_value(module, context, BIAS);
    float *normalized = sl_kept_values(context, &own->normalized), *rstd = sl_at(context, &own->norm.rstd);
    uint16_t *operand = sl_operand_result(context);
    if (own->normalized.rounds) {
        forward_kept(module, context, x, y);
    } else if (operand) {
        context->kernels->operands->layer_norm_forward(rows, cols, x, scale, bias, (float)SL_NORM_EPSILON, normalized,
                                                       rstd, operand);
        context->result->done = true;
    } else {
        context->kernels->layer_norm_forward(rows, cols, x, scale, bias, (float)SL_NORM_EPSILON, normalized, rstd, y);
    }
    return SL_OK;
}

/* What is left as bf16, or lies so. */
static void backward_halves(const struct sl_module *module, struct sl_context *context, const float *dy, float *dx) {
    const struct layer_norm *own = own_of(module);
    const bool halves = own->normalized.rounds;
    const size_t microbatches = sl_call_microbatches(context);
    struct sl_summand *const summand = context->summand;
    struct sl_result *const result = summand ? summand->result : context->result;
    struct sl_norm_rows added = of_floats(summand ? summand->x : NULL);
    if (summand && summand->stored) added = (struct sl_norm_rows){summand->stored, true};
    context->kernels->norms->layer_norm_backward(
        microbatches, (size_t)context->rows / microbatches, (size_t)module->in, rows_of(module, context, dy),
        (struct sl_norm_rows){halves ? (const void *)sl_kept_halves(context, &own->normalized)
                                     : sl_kept_values(context, &own->normalized),
                              halves},
        sl_at(context, &own->norm.rstd), sl_value(module, context, SCALE), added, sl_result_settled(result),
        result && result->unread ? NULL : dx, module->frozen ? NULL : sl_at(context, &own->norm.sum[SCALE]),
        sl_at(context, &own->norm.sum[BIAS]));
    if (summand) summand->done = true;
    if (result) result->done = true;
}

/* The same pass over dy that gives dx gives each microbatch's sums for scale and bias: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct layer_norm *own = own_of(module);
    const size_t cols = (size_t)module->in, microbatches = sl_call_microbatches(context);
    const size_t rows = (size_t)context->rows / microbatches;
    (void)x;
    if (!dx) dx = sl_at(context, &own->unwanted);
    if (own->reads_halves) {
        backward_halves(module, context, dy, dx);
        return SL_OK;
    }
    const float *normalized = sl_recall(context, &own->normalized), *rstd = sl_at(context, &own->norm.rstd);
    context->kernels->layer_norm_backward(microbatches, rows, cols, dy, normalized, rstd,
                                          sl_value(module, context, SCALE), sl_added(context, NULL), dx,
                                          sl_at(context, &own->norm.sum[SCALE]), sl_at(context, &own->norm.sum[BIAS]));
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
