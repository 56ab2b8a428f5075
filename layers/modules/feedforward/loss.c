/* loss.c - softmax cross entropy, the end of a classifier. */
#include "layers/modules/modules.h"

struct loss {
    struct sl_module module;
    struct sl_place rows; /* [rows, 2]: each row's terms of the sums */
};

static int plan_loss(struct sl_module *module, struct sl_plan *plan) {
    sl_plan_bound(plan, SL_READS_LABELS, module->in);
    sl_plan_workspace(plan, 2 * sl_plan_rows(plan) * sizeof(float), &((struct loss *)module)->rows);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const size_t rows = (size_t)context->rows;
    const int32_t *labels = context->batch.labels;
    float *losses = sl_at(context, &((const struct loss *)module)->rows);
    context->kernels->softmax_cross_entropy(rows, (size_t)module->in, x.floats, labels, context->weight, y->floats,
                                            losses);
    if (context->sums) context->kernels->add_losses(rows, labels, losses, context->sums->losses);
    return SL_OK;
}

static const struct sl_module_type type = {.name = "softmax_cross_entropy",
                                           .bytes = sizeof(struct loss),
                                           .plan = plan_loss,
                                           .forward = forward,
                                           .reads = SL_READS_LABELS};

struct sl_module *sl_softmax_cross_entropy(int classes) { return sl_module_new(&type, "", classes, classes); }
