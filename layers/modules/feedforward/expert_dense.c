/* expert_dense.c - y = x kernel + bias with a kernel for each expert: rows are the experts' own, one expert's after
 * another's, as many for each.
 *
 * Experts are sharded over an axis, and so are rows: whoever has an expert has all rows that come to it, and leaves its
 * whole gradient. Columns are sharded over another axis as those of sharded_dense.c: what the experts make of a
 * coordinate's columns is added up and scattered over y, for all of them at once. */
#include <stdio.h>
#include <stdlib.h>

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/shards.h"
#include "layers/modules/transformer_modules.h"

enum { COLUMNS = SL_AFFINE_DY + 1 }; /* workspace: [rows, whole], what the products make of y; all of dy */

struct experts {
    int all;
    size_t here;
    char axis[SL_AXIS_NAME];
};

/* ---- planning ---- */

static int plan_parameters(struct sl_module *module, struct sl_plan *plan) {
    const struct experts *experts = module->user;
    const size_t kernel_shape[] = {(size_t)experts->all, (size_t)module->whole_in, (size_t)module->whole};
    const size_t bias_shape[] = {kernel_shape[0], kernel_shape[2]};
    const float scale = sl_lecun_normal(kernel_shape[1]);
    const int kernel = sl_plan_parameter_by_rule(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 3, kernel_shape);
    if (kernel < 0) return plan->error->status;
    const int bias = sl_plan_parameter_by_rule(plan, "bias", SL_INIT_ZEROS, 0.0f, 2, bias_shape);
    if (bias < 0) return plan->error->status;
    module->parameter[SL_AFFINE_KERNEL] = kernel;
    module->parameter[SL_AFFINE_BIAS] = bias;
    const char *const kernel_axes[] = {experts->axis, module->axis, NULL}, *const bias_axes[] = {experts->axis, NULL};
    for (int dim = 0; dim < 3; dim++) SL_TRY(sl_plan_expect_sharded(plan, kernel, dim, kernel_axes[dim], 1));
    for (int dim = 0; dim < 2; dim++) SL_TRY(sl_plan_expect_sharded(plan, bias, dim, bias_axes[dim], 1));
    return SL_OK;
}

/* Each product is of one expert's rows in one microbatch. */
static int plan_products(struct sl_module *module, struct sl_plan *plan) {
    const struct experts *experts = module->user;
    struct sl_plan own = *plan;
    own.rows = plan->rows / (int)experts->here;
    own.wgrad_group = 1;
    const int status =
        sl_affine_plan_products(module, &own, module->whole, module->group < 0 ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE);
    plan->workspace = own.workspace;
    plan->workspace_peak = own.workspace_peak;
    return status;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct experts *experts = module->user;
    experts->here = (size_t)(experts->all / sl_mesh_axis_size(plan->mesh, experts->axis));
    SL_TRY(sl_plan_columns(module, plan, module->whole_in, 1));
    SL_TRY(sl_plan_columns(module, plan, module->whole, 1));
    SL_TRY(sl_plan_group(plan, module, module->axis));
    SL_TRY(plan_parameters(module, plan));
    if (module->group >= 0)
        module->workspace[COLUMNS] =
            sl_plan_workspace(plan, (size_t)plan->rows * (size_t)module->whole * sizeof(float));
    return plan_products(module, plan);
}

/* ---- one expert's product ---- */

/* What a call works on: A and, for gradients of kernels, B are arrays of all experts' rows. */
static size_t rows_of_one(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->rows / ((const struct experts *)module->user)->here;
}

static size_t kernel_size(const struct sl_module *module) { return (size_t)module->in * (size_t)module->whole; }

static const void *kernel_of(const struct sl_module *module, const struct sl_context *context, size_t expert) {
    const enum sl_dtype dtype = module->gemm[SL_AFFINE_FORWARD].dtype;
    return (const char *)sl_affine_kernel(module, context) + expert * kernel_size(module) * sl_dtype_size(dtype);
}

static const float *bias_of(const struct sl_module *module, const struct sl_context *context, size_t expert) {
    return sl_value(module, context, SL_AFFINE_BIAS) + expert * (size_t)module->whole;
}

/* EXPERT's rows of X [rows, columns], as products take them. */
static const void *operand_of(const struct sl_module *module, const struct sl_context *context, int buffer,
                              size_t expert, size_t columns, const float *x) {
    const size_t count = rows_of_one(module, context) * columns;
    return sl_affine_operand(module, context, buffer, count, x + expert * count);
}

/* ---- communication ---- */

static int communicate(struct sl_context *context, const char *site, struct sl_collective call) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_call(context->self, site, call);
    sl_profile_end(context->profile, before);
    return status;
}

static float *columns_room(const struct sl_module *module, const struct sl_context *context) {
    return (float *)(void *)(context->workspace + module->workspace[COLUMNS]);
}

/* *ALL [rows, whole] of DY [rows, out]. */
static int gather_gradient(const struct sl_module *module, struct sl_context *context, const float *dy,
                           const float **all) {
    const struct sl_group *peers = sl_group_of(module, context);
    *all = peers ? columns_room(module, context) : dy;
    if (!peers) return SL_OK;
    const size_t shape[] = {(size_t)context->rows, (size_t)module->out};
    return communicate(context, SL_HERE,
                       sl_describe_all_gather_dim(peers, SL_F32, dy, columns_room(module, context), 2, shape, 1));
}

/* ---- forward and backward ---- */

static int add_up(const struct sl_module *module, struct sl_context *context, const float *share, float *y) {
    const struct experts *experts = module->user;
    const struct sl_group *peers = sl_group_of(module, context);
    const size_t out = (size_t)module->out, rows = rows_of_one(module, context);
    const size_t shape[] = {(size_t)context->rows, out * (size_t)peers->size};
    SL_TRY(communicate(context, SL_HERE, sl_describe_psum_scatter_dim(peers, SL_F32, share, y, 2, shape, 1)));
    for (size_t e = 0; e < experts->here; e++)
        context->kernels->sequence->add_bias(rows, out, bias_of(module, context, e) + out * (size_t)peers->rank,
                                             y + e * rows * out, out);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct experts *experts = module->user;
    const size_t count = rows_of_one(module, context) * (size_t)module->whole;
    float *share = module->group < 0 ? y : columns_room(module, context);
    for (size_t e = 0; e < experts->here; e++)
        SL_TRY(sl_affine_multiply(
            module, context, SL_AFFINE_FORWARD, operand_of(module, context, SL_AFFINE_X, e, (size_t)module->in, x),
            kernel_of(module, context, e), bias_of(module, context, e), false, share + e * count));
    return module->group < 0 ? SL_OK : add_up(module, context, share, y);
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    (void)x;
    const struct experts *experts = module->user;
    const size_t count = rows_of_one(module, context) * (size_t)module->in;
    const float *all;
    if (!dx) return SL_OK; /* nor does any peer need it: they are in the same stage */
    SL_TRY(gather_gradient(module, context, dy, &all));
    for (size_t e = 0; e < experts->here; e++)
        SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_INPUT_GRADIENT,
                                  operand_of(module, context, SL_AFFINE_DY, e, (size_t)module->whole, all),
                                  kernel_of(module, context, e), NULL, false, dx + e * count));
    return SL_OK;
}

/* Of one microbatch. */
static int add_weight_gradients(const struct sl_module *module, struct sl_context *context, bool accumulate,
                                const float *x, const float *dy) {
    const struct experts *experts = module->user;
    const size_t rows = rows_of_one(module, context), whole = (size_t)module->whole;
    float *kernel = sl_gradient(module, context, SL_AFFINE_KERNEL),
          *bias = sl_gradient(module, context, SL_AFFINE_BIAS);
    const float *all;
    SL_TRY(gather_gradient(module, context, dy, &all));
    for (size_t e = 0; e < experts->here; e++) {
        const void *a = operand_of(module, context, SL_AFFINE_X, e, (size_t)module->in, x);
        const void *b = operand_of(module, context, SL_AFFINE_DY, e, whole, all);
        SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_WEIGHT_GRADIENT, a, b, NULL, accumulate,
                                  kernel + e * kernel_size(module)));
        context->kernels->column_sums(rows, whole, all + e * rows * whole, accumulate, bias + e * whole);
    }
    return SL_OK;
}

/* An expert's rows in different microbatches are not neighbours: a product for each. */
static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const size_t rows = (size_t)context->rows;
    for (int m = 0; m < context->wgrad_group; m++, x += rows * (size_t)module->in, dy += rows * (size_t)module->out)
        SL_TRY(add_weight_gradients(module, context, context->accumulate || m > 0, x, dy));
    return SL_OK;
}

static void release(struct sl_module *module) { free(module->user); }

static const struct sl_module_type expert_dense = {"expert_dense", plan, forward, backward_input, backward_weight};

struct sl_module *sl_expert_dense(const char *name, int experts, const char *axis, int in, int out,
                                  const struct sl_channels *channels) {
    const int shards = sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&expert_dense, name, in / shards, out / shards);
    struct experts *own = module ? module->user = calloc(1, sizeof *own) : NULL;
    if (!own) {
        sl_module_free(module);
        return NULL;
    }
    own->all = experts;
    snprintf(own->axis, sizeof own->axis, "%s", axis);
    module->release = release;
    module->whole_in = in;
    module->whole = out;
    snprintf(module->axis, sizeof module->axis, "%s", channels->axis);
    return module;
}
