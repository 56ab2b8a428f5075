/* mean_squared_error.c - the end of a regression. */
#include "layers/modules/modules.h"

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    context->kernels->mean_squared_error((size_t)context->rows, (size_t)module->in, x.floats, context->batch.targets,
                                         context->weight, y->floats, context->sums->room, context->sums->losses);
    return SL_OK;
}

static const struct sl_module_type type = {.name = "mean_squared_error", .forward = forward, .reads = SL_READS_TARGETS};

struct sl_module *sl_mean_squared_error(int columns) { return sl_module_new(&type, "", columns, columns); }
