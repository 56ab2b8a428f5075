/* norm.c - the gradients of the factor and the shift of layer_norm and rms_norm. */
#include "layers/modules/norms/norm.h"

void sl_norm_count(const struct sl_plan *plan, int columns) {
    const double elements = (double)plan->rows * columns;
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_NORMS, elements);
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_NORMS, 2 * elements);
}

static int last_of(const struct sl_norm *norm) { return norm->no_shift ? SL_NORM_FACTOR : SL_NORM_SHIFT; }

int sl_norm_plan_sums(struct sl_norm *norm, struct sl_plan *plan) {
    for (int i = SL_NORM_FACTOR; i <= last_of(norm); i++)
        SL_TRY(sl_plan_array(plan, (size_t)norm->module.in, sl_from_input_if(sl_plan_trains(plan, i)), &norm->sum[i]));
    return SL_OK;
}

int sl_norm_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_given dy) {
    const struct sl_norm *norm = (const struct sl_norm *)module;
    (void)x, (void)dy;
    for (int i = SL_NORM_FACTOR; i <= last_of(norm); i++) {
        if (sl_is_frozen(module, context, i)) continue;
        context->kernels->column_sums((size_t)context->wgrad_group, (size_t)module->in, sl_at(context, &norm->sum[i]),
                                      context->accumulate, sl_gradient(module, context, i));
    }
    return SL_OK;
}
