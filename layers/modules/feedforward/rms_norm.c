/* rms_norm.c - divides each row by its root mean square over all coordinates' columns, then scales and shifts them. */
#include <stdio.h>

#include "layers/modules/shards.h"
#include "layers/modules/transformer_modules.h"

enum { GAMMA, BETA };               /* parameters */
enum { RSTD, GAMMA_SUM, BETA_SUM }; /* stash: [rows], [cols], [cols] a microbatch */
enum { SUMS, UNKEPT_RSTD };         /* workspace: [rows] to be added up; [rows] where there is no stash */

static int plan_parameters(struct sl_module *module, struct sl_plan *plan) {
    const size_t columns = (size_t)module->whole;
    module->parameter[GAMMA] = sl_plan_parameter_by_rule(plan, "gamma", SL_INIT_ONES, 0.0f, 1, &columns);
    if (module->parameter[GAMMA] < 0) return plan->error->status;
    module->parameter[BETA] = sl_plan_parameter_by_rule(plan, "beta", SL_INIT_ZEROS, 0.0f, 1, &columns);
    if (module->parameter[BETA] < 0) return plan->error->status;
    SL_TRY(sl_plan_expect_sharded(plan, module->parameter[GAMMA], 0, module->axis, 1));
    return sl_plan_expect_sharded(plan, module->parameter[BETA], 0, module->axis, 1);
}

static int plan_stash(struct sl_module *module, struct sl_plan *plan) {
    module->keeps_input = true;
    module->stash[RSTD] = sl_plan_stash(plan, 1);
    module->stash[GAMMA_SUM] = sl_plan_stash_flat(plan, (size_t)module->in);
    module->stash[BETA_SUM] = sl_plan_stash_flat(plan, (size_t)module->in);
    for (int i = RSTD; i <= BETA_SUM; i++)
        if (module->stash[i] < 0) return plan->error->status;
    return SL_OK;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    const size_t sums = (size_t)plan->rows * sizeof(float);
    SL_TRY(sl_plan_columns(module, plan, module->whole, 1));
    SL_TRY(sl_plan_group(plan, module, module->axis));
    SL_TRY(plan_parameters(module, plan));
    module->workspace[SUMS] = sl_plan_workspace(plan, sums);
    module->stash[RSTD] = -1;
    module->keeps_input = false;
    if (!plan->forward_only) return plan_stash(module, plan);
    module->workspace[UNKEPT_RSTD] = sl_plan_workspace(plan, sums);
    return SL_OK;
}

static float *room(const struct sl_module *module, const struct sl_context *context, int number) {
    return (float *)(void *)(context->workspace + module->workspace[number]);
}

static float *rstd_of(const struct sl_module *module, const struct sl_context *context) {
    return module->stash[RSTD] < 0 ? room(module, context, UNKEPT_RSTD) : sl_stash_of(context, module->stash[RSTD]);
}

/* SUMS [rows] of one's own columns become those of all columns. */
static int add_up(const struct sl_module *module, struct sl_context *context, float *sums) {
    const struct sl_group *peers = sl_group_of(module, context);
    if (!peers) return SL_OK;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_psum(context->self, peers, SL_F32, sums, sums, (size_t)context->rows);
    sl_profile_end(context->profile, before);
    return status;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in;
    float *sums = room(module, context, SUMS);
    kernels->square_sums(rows, cols, x, sums);
    SL_TRY(add_up(module, context, sums));
    kernels->rms_norm_forward(rows, cols, (size_t)module->whole, x, sums, sl_value(module, context, GAMMA),
                              sl_value(module, context, BETA), (float)module->option, rstd_of(module, context), y);
    return SL_OK;
}

/* Leaves the microbatch's sums for gamma and beta, while dy is at hand: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in;
    const float *gamma = sl_value(module, context, GAMMA), *rstd = rstd_of(module, context);
    kernels->rms_norm_backward_weight(rows, cols, dy, x, rstd, sl_stash_of(context, module->stash[GAMMA_SUM]),
                                      sl_stash_of(context, module->stash[BETA_SUM]));
    if (!dx) return SL_OK;
    float *dots = room(module, context, SUMS);
    kernels->rms_norm_dots(rows, cols, dy, x, gamma, dots);
    SL_TRY(add_up(module, context, dots));
    kernels->rms_norm_backward_input(rows, cols, (size_t)module->whole, dy, x, rstd, gamma, dots, dx);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    (void)x, (void)dy;
    for (int i = GAMMA; i <= BETA; i++)
        context->kernels->column_sums((size_t)context->wgrad_group, (size_t)module->in,
                                      sl_stash_of(context, module->stash[GAMMA_SUM + i]), context->accumulate,
                                      sl_gradient(module, context, i));
    return SL_OK;
}

static const struct sl_module_type rms_norm = {"rms_norm", plan, forward, backward_input, backward_weight};

struct sl_module *sl_rms_norm(const char *name, int columns, const struct sl_channels *channels) {
    const int own = columns / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&rms_norm, name, own, own);
    if (!module) return NULL;
    module->option = 1e-6;
    module->whole = columns;
    snprintf(module->axis, sizeof module->axis, "%s", channels->axis);
    return module;
}
