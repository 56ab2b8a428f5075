/* loss.c - softmax cross entropy, the end of a classifier. */
#include "layers/modules/modules.h"

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    double sums[3] = {0};
    context->kernels->softmax_cross_entropy((size_t)context->rows, (size_t)module->in, x, context->batch.labels,
                                            context->weight, y, sums);
    sl_metrics_add(context->metrics, sums);
    return SL_OK;
}

static const struct sl_module_type type = {
    .name = "softmax_cross_entropy", .forward = forward, .reads = SL_READS_LABELS};

struct sl_module *sl_softmax_cross_entropy(int classes) { return sl_module_new(&type, "", classes, classes); }
