/* modules.c - modules of the article's networks that the library lacks, and a module that fails on purpose. */
#include <string.h>

#include "drivers/gpipe/gpipe.h"
#include "spmd/device/device.h"
#include "spmd/device/offload.h"

/* ---- relu: dx needs the sign of x ---- */

static int relu_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                        struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const size_t n = sl_module_elements(module, context);
    SL_ELEMENTWISE(is_device_ptr(x, y))
    for (size_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
    return SL_OK;
}

static int relu_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                               struct sl_given given, struct sl_result *result) {
    const float *x = saved.floats, *dy = given.floats;
    float *dx = sl_result_floats(result);
    const size_t n = dx ? sl_module_elements(module, context) : 0;
    SL_ELEMENTWISE(is_device_ptr(x, dy, dx))
    for (size_t i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : 0;
    return SL_OK;
}

static const struct sl_module_type relu = {
    .name = "relu", .forward = relu_forward, .backward_input = relu_backward_input};

struct sl_module *gpipe_relu(int cols) { return sl_module_new(&relu, "", cols, cols); }

/* ---- the loss ---- */

struct sum {
    struct sl_module module;
    float *outputs; /* as in struct gpipe_run, in the device's memory */
};

static int sum_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                       struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const size_t n = sl_module_elements(module, context);
    float *outputs = ((const struct sum *)module)->outputs;
    const float weight = context->weight;
    const double rows = context->rows;
    double *sums = context->sums->losses;
    if (outputs) sl_device.copy(outputs + (size_t)context->microbatch * n, x, n * sizeof *x);
    SL_ELEMENTWISE(is_device_ptr(y))
    for (size_t i = 0; i < n; i++) y[i] = weight;
    SL_ROWS(is_device_ptr(x, sums))
    for (size_t once = 0; once < 1; once++) {
        double loss = 0;
        SL_ADDS(reduction(+ : loss))
        for (size_t i = 0; i < n; i++) loss += x[i];
        sums[0] += loss;
        sums[2] += rows;
    }
    return SL_OK;
}

static const struct sl_module_type sum = {.name = "sum", .forward = sum_forward, .bytes = sizeof(struct sum)};

struct sl_module *gpipe_sum(int cols, float *outputs) {
    struct sl_module *module = sl_module_new(&sum, "", cols, cols);
    if (module) ((struct sum *)module)->outputs = outputs;
    return module;
}

/* ---- failing ---- */

struct failing {
    struct sl_module module;
    const struct gpipe_failure *failure;
};

/* Whether to fail: one of ACTIONS comes next, for COUNT microbatches, and is the failure's. */
static int fail_at(const struct sl_module *module, struct sl_context *context, const char *actions, int count) {
    const struct gpipe_failure *failure = ((const struct failing *)module)->failure;
    const char action = failure->action;
    const int first = context->microbatch, stage = sl_axis_index(context->self, GPIPE_PIPE_AXIS);
    if (!strchr(actions, action) || failure->microbatch < first || failure->microbatch >= first + count) return SL_OK;
    const char *what = action == 'F'   ? "forward"
                       : action == 'B' ? "backward"
                       : action == 'I' ? "input gradient"
                                       : "weight gradient";
    return sl_fail(context->self, SL_FAILED, "fails before %d%c%d (stage %d, %s of microbatch %d), as --fail %s says",
                   stage, action, failure->microbatch, stage, what, failure->microbatch, failure->text);
}

static int plan_failing(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    SL_TRY(sl_module_plan(inner, plan));
    module->x.lasts = inner->x.lasts;
    module->y.lasts = inner->y.lasts;
    return SL_OK;
}

static int failing_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_result *y) {
    SL_TRY(fail_at(module, context, "F", 1));
    return sl_module_forward(module->child[0], context, x, y);
}

static int failing_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy, struct sl_result *dx) {
    SL_TRY(fail_at(module, context, "BI", 1));
    return sl_module_backward_input(module->child[0], context, x, dy, dx);
}

static int failing_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_given dy) {
    SL_TRY(fail_at(module, context, "W", context->wgrad_group));
    return sl_module_backward_weight(module->child[0], context, x, dy);
}

static const struct sl_module_type failing = {.name = "failing",
                                              .plan = plan_failing,
                                              .forward = failing_forward,
                                              .backward_input = failing_backward_input,
                                              .backward_weight = failing_backward_weight,
                                              .bytes = sizeof(struct failing)};

struct sl_module *gpipe_failing(struct sl_module *inner, const struct gpipe_failure *failure) {
    struct sl_module *module =
        sl_module_new_parent(&failing, "", inner ? inner->in : 0, inner ? inner->out : 0, 1, &inner);
    if (module) ((struct failing *)module)->failure = failure;
    return module;
}
