/* layer_norm.c - normalizes each row over its columns, then scales and shifts them. */
#include "layers/modules/norms/norm.h"
#include "layers/modules/kept.h"
#include "layers/modules/modules.h"

enum { SCALE = SL_NORM_FACTOR, BIAS = SL_NORM_SHIFT };

struct layer_norm {
    struct sl_norm norm;
    struct sl_kept normalized; /* [rows, cols] */
    struct sl_place unwanted;  /* [rows, cols]: memory for a dx that is not needed */
    bool reads_halves;         /* x, dy and summands may be bf16 only, and dx may be written as bf16 only */
};

static const struct layer_norm *own_of(const struct sl_module *module) { return (const struct layer_norm *)module; }

/* Only on a device whose products write only bf16. Other devices, and CPUs, read floats, so that sums along a row have
 * the order that compilers choose for floats. */
static void plan_halves(struct layer_norm *own, const struct sl_plan *plan) {
    struct sl_module *module = &own->norm.module;
    own->reads_halves =
        sl_kernels_select()->whole_norms && plan->precision == SL_BF16 && sl_gemm_leaves_bf16(plan->gemm);
    module->x.reads = module->y.reads = sl_copy_if(own->reads_halves);
    module->x.writes = own->reads_halves ? SL_WRITES_BOTH : SL_WRITES_ASKED;
    module->x.adds = own->reads_halves ? SL_ADDS_BF16 : SL_ADDS_FLOATS;
    module->y.writes = SL_WRITES_ASKED;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct layer_norm *own = (struct layer_norm *)module;
    const size_t cols = (size_t)module->in, rows = (size_t)plan->rows;
    module->x.lasts = module->y.lasts = SL_UNTIL_RETURN;
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

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct layer_norm *own = own_of(module);
    context->kernels->norms->layer_norm_forward((size_t)context->rows, (size_t)module->in, sl_read_rows(&module->x, x),
                                                sl_value(module, context, SCALE), sl_value(module, context, BIAS),
                                                (float)SL_NORM_EPSILON, sl_kept_rows(context, &own->normalized),
                                                sl_at(context, &own->norm.rstd), sl_result_out(y));
    return SL_OK;
}

/* The pass over dy that computes dx also computes each microbatch's sums for scale and bias: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct layer_norm *own = own_of(module);
    const size_t microbatches = sl_call_microbatches(context);
    struct sl_rows normalized, summand;
    struct sl_result unwanted = {.floats = sl_at(context, &own->unwanted)};
    struct sl_out left;
    (void)x;
    if (!dx) dx = &unwanted;
    if (own->reads_halves) {
        left = sl_result_summed(dx, &summand);
        normalized = sl_kept_rows(context, &own->normalized);
    } else {
        left = sl_out_f32(dx->floats);
        summand = sl_given_rows(dx->adds);
        if (summand.at) dx->made = SL_ADDED;
        normalized = sl_rows_f32(sl_recall(context, &own->normalized));
    }
    context->kernels->norms->layer_norm_backward(
        microbatches, (size_t)context->rows / microbatches, (size_t)module->in, sl_read_rows(&module->y, dy),
        normalized, sl_at(context, &own->norm.rstd), sl_value(module, context, SCALE), summand, left,
        module->frozen ? NULL : sl_at(context, &own->norm.sum[SCALE]), sl_at(context, &own->norm.sum[BIAS]));
    return SL_OK;
}

static const struct sl_module_type layer_norm = {.name = "layer_norm",
                                                 .plan = plan,
                                                 .forward = forward,
                                                 .backward_input = backward_input,
                                                 .stores = true,
                                                 .backward_weight = sl_norm_backward_weight,
                                                 .spares = true,
                                                 .fuses = true,
                                                 .bytes = sizeof(struct layer_norm)};

struct sl_module *sl_layer_norm(const char *name, int cols) { return sl_module_new(&layer_norm, name, cols, cols); }
