/* norm.c - the gradients of the factor and the shift of layer_norm and rms_norm. */
#include "layers/modules/norms/norm.h"

void sl_norm_count(const struct sl_plan *plan, int columns) {
    const double elements = (double)plan->rows * columns;
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_NORMS, elements);
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_NORMS, 2 * elements);
}

static int last_of(const struct sl_norm *norm) { return norm->no_shift ? SL_NORM_FACTOR : SL_NORM_SHIFT; }

/* Plans the sums over coordinates with other rows. */
static int plan_total(struct sl_norm *norm, struct sl_plan *plan) {
    const double columns = norm->module.in, each = 1.0 / plan->wgrad_group;
    norm->rows_group = -1;
    if (!norm->rows_axis) return SL_OK;
    SL_TRY(sl_plan_group(plan, norm->rows_axis, &norm->rows_group));
    sl_plan_workspace(plan, (size_t)norm->module.in * sizeof(float), &norm->total);
    for (int i = SL_NORM_FACTOR; i <= last_of(norm); i++)
        if (sl_plan_trains(plan, i))
            sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, norm->rows_axis, sizeof(float) * columns * each, each);
    return SL_OK;
}

int sl_norm_plan_sums(struct sl_norm *norm, struct sl_plan *plan) {
    SL_TRY(plan_total(norm, plan));
    for (int i = SL_NORM_FACTOR; i <= last_of(norm); i++)
        SL_TRY(sl_plan_array(plan, (size_t)norm->module.in, sl_from_input_if(sl_plan_trains(plan, i)), &norm->sum[i]));
    return SL_OK;
}

/* Adds up the microbatches' sums SUM for parameter I, over all coordinates with other rows. */
static int add_up(const struct sl_norm *norm, struct sl_context *context, int i, bool accumulate, float *gradient) {
    const size_t columns = (size_t)norm->module.in, group = (size_t)context->wgrad_group;
    const struct sl_kernels *kernels = context->kernels;
    float *total = norm->rows_group < 0 || !accumulate ? gradient : sl_at(context, &norm->total);
    kernels->column_sums(group, columns, sl_at(context, &norm->sum[i]), accumulate && total == gradient, total);
    SL_TRY(sl_sum_over(context, norm->rows_group, columns, total));
    if (total != gradient) kernels->add(columns, total, gradient);
    return SL_OK;
}

int sl_norm_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                            const float *dy) {
    const struct sl_norm *norm = (const struct sl_norm *)module;
    (void)x, (void)dy;
    for (int i = SL_NORM_FACTOR; i <= last_of(norm); i++) {
        if (sl_is_frozen(module, context, i)) continue;
        SL_TRY(add_up(norm, context, i, context->accumulate, sl_gradient(module, context, i)));
    }
    return SL_OK;
}
