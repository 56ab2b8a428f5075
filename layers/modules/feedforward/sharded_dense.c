/* sharded_dense.c - y = x kernel + bias, where each coordinate along an axis has a share of the columns of x and y.
 *
 * It has the rows of the kernel that belong to its columns of x. What it makes of them is its share of the sum that is
 * y: the shares are added up and scattered over the columns (a psum_scatter), so that no coordinate ever keeps all of
 * y. Backward is the opposite: all columns of dy are gathered, and then give this coordinate's columns of dx and rows
 * of the kernel's gradient. Where all coordinates need all of y (summed_dense) the two are sums.
 *
 * The columns of the kernel may be sharded, too, over another axis, whose coordinates have other rows of x (FSDP;
 * ZeRO's third stage, Rajbhandari et al. 2020). Then the whole rows of the kernel are gathered before each product, and
 * the sum of their gradients is scattered again. */
#include <stdio.h>

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/shards.h"
#include "layers/modules/transformer_modules.h"

/* Workspace beside that of affine.h. */
enum {
    COLUMNS = SL_AFFINE_DY + 1, /* [rows of a group, whole]: what the product makes of y; all of dy */
    KERNEL,                     /* [in, whole]: where its columns are sharded, the kernel; its gradient */
    SHARD,                      /* of that gradient, to be added */
};

/* Whether y is scattered over its columns; otherwise all have all of it. */
static bool scatters(const struct sl_module *module) { return module->out < module->whole; }

/* ---- planning ---- */

static int plan_parameters(struct sl_module *module, struct sl_plan *plan) {
    const size_t shape[] = {(size_t)module->whole_in, (size_t)module->whole};
    const int kernel =
        sl_plan_parameter_by_rule(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, sl_lecun_normal(shape[0]), 2, shape);
    if (kernel < 0) return plan->error->status;
    const int bias = sl_plan_parameter_by_rule(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &shape[1]);
    if (bias < 0) return plan->error->status;
    module->parameter[SL_AFFINE_KERNEL] = kernel;
    module->parameter[SL_AFFINE_BIAS] = bias;

    const char *data = sl_plan_sharding_axis(plan, kernel, 1);
    SL_TRY(sl_plan_expect_sharded(plan, kernel, 0, module->axis, module->segments_in));
    SL_TRY(sl_plan_expect_sharded(plan, kernel, 1, data, 1));
    SL_TRY(sl_plan_expect_sharded(plan, bias, 0, NULL, 1));
    module->data_group = -1;
    return data ? sl_groups_find(plan->groups, plan->mesh, data, &module->data_group, plan->error) : SL_OK;
}

static void plan_workspace(struct sl_module *module, struct sl_plan *plan) {
    const size_t in = (size_t)module->in, out = (size_t)module->whole;
    const size_t rows = (size_t)plan->rows * (size_t)(plan->forward_only ? 1 : plan->wgrad_group);
    const bool rounds_only = plan->forward_only && plan->precision == SL_BF16;
    if (module->group >= 0) module->workspace[COLUMNS] = sl_plan_workspace(plan, rows * out * sizeof(float));
    if (module->data_group < 0) return;
    module->workspace[KERNEL] = sl_plan_workspace(plan, in * out * sl_dtype_size(rounds_only ? SL_BF16 : SL_F32));
    if (plan->forward_only) return;
    const size_t shard = plan->parameters->list[module->parameter[SL_AFFINE_KERNEL]].count;
    module->workspace[SHARD] = sl_plan_workspace(plan, shard * sizeof(float));
}

/* With peers the bias is added after the sum, and so once. */
static int plan(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(sl_plan_columns(module, plan, module->whole_in, module->segments_in));
    if (scatters(module)) SL_TRY(sl_plan_columns(module, plan, module->whole, module->segments_out));
    SL_TRY(sl_plan_group(plan, module, module->axis));
    SL_TRY(plan_parameters(module, plan));
    plan_workspace(module, plan);
    return sl_affine_plan_products(module, plan, module->whole,
                                   module->group < 0 ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE);
}

/* ---- communication ---- */

static float *room(const struct sl_module *module, const struct sl_context *context, int number) {
    return (float *)(void *)(context->workspace + module->workspace[number]);
}

static const struct sl_group *data_peers_of(const struct sl_module *module, const struct sl_context *context) {
    return module->data_group < 0 ? NULL : &context->groups->group[module->data_group];
}

static int communicate(struct sl_context *context, const char *site, struct sl_collective call) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_call(context->self, site, call);
    sl_profile_end(context->profile, before);
    return status;
}

/* *KERNEL [in, whole], as products take it. */
static int gather_kernel(const struct sl_module *module, struct sl_context *context, const void **kernel) {
    const struct sl_group *data = data_peers_of(module, context);
    const enum sl_dtype dtype = module->gemm[SL_AFFINE_FORWARD].dtype;
    const void *own = *kernel = sl_affine_kernel(module, context);
    if (!data) return SL_OK;
    void *all = room(module, context, KERNEL);
    *kernel = all;
    const size_t shape[] = {(size_t)module->in, (size_t)(module->whole / data->size)};
    return communicate(context, SL_HERE, sl_describe_all_gather_dim(data, dtype, own, all, 2, shape, 1));
}

/* *ALL [rows, whole] of DY [rows, out]. */
static int gather_gradient(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                           const float **all) {
    const struct sl_group *peers = sl_group_of(module, context);
    const size_t segments = (size_t)module->segments_out;
    const size_t shape[] = {rows, segments, (size_t)module->out / segments};
    *all = dy;
    if (!peers) return SL_OK;
    float *columns = room(module, context, COLUMNS);
    *all = columns;
    if (!scatters(module))
        return communicate(context, SL_HERE,
                           sl_describe_psum(peers, SL_F32, dy, columns, rows * (size_t)module->whole));
    return communicate(context, SL_HERE, sl_describe_all_gather_dim(peers, SL_F32, dy, columns, 3, shape, 2));
}

/* Y [rows, out] of SHARE [rows, whole], of which it is the sum; where all of it stays, SHARE is Y. */
static int add_up(const struct sl_module *module, struct sl_context *context, const float *share, float *y) {
    const struct sl_group *peers = sl_group_of(module, context);
    const size_t rows = (size_t)context->rows, segments = (size_t)module->segments_out, whole = (size_t)module->whole;
    const size_t shape[] = {rows, segments, whole / segments};
    if (!scatters(module))
        return communicate(context, SL_HERE, sl_describe_psum(peers, SL_F32, share, y, rows * whole));
    return communicate(context, SL_HERE, sl_describe_psum_scatter_dim(peers, SL_F32, share, y, 3, shape, 2));
}

/* ---- forward and backward ---- */

/* Adds this coordinate's columns of it to Y [rows, out], segment by segment. */
static void add_bias(const struct sl_module *module, struct sl_context *context, float *y) {
    const size_t segments = (size_t)module->segments_out, out = (size_t)module->out, columns = out / segments;
    const size_t first = scatters(module) ? columns * (size_t)sl_group_of(module, context)->rank : 0;
    const float *bias = sl_value(module, context, SL_AFFINE_BIAS);
    for (size_t s = 0; s < segments; s++)
        context->kernels->sequence->add_bias((size_t)context->rows, columns,
                                             bias + s * ((size_t)module->whole / segments) + first, y + s * columns,
                                             out);
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const void *kernel,
        *a = sl_affine_operand(module, context, SL_AFFINE_X, (size_t)context->rows * (size_t)module->in, x);
    float *share = scatters(module) ? room(module, context, COLUMNS) : y;
    SL_TRY(gather_kernel(module, context, &kernel));
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_FORWARD, a, kernel, sl_value(module, context, SL_AFFINE_BIAS),
                              false, share));
    if (module->group < 0) return SL_OK;
    SL_TRY(add_up(module, context, share, y));
    add_bias(module, context, y);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    (void)x;
    const float *all;
    const void *kernel;
    if (!dx) return SL_OK; /* nor does any peer need it: they are in the same stage */
    SL_TRY(gather_gradient(module, context, (size_t)context->rows, dy, &all));
    SL_TRY(gather_kernel(module, context, &kernel));
    const void *a =
        sl_affine_operand(module, context, SL_AFFINE_DY, (size_t)context->rows * (size_t)module->whole, all);
    return sl_affine_multiply(module, context, SL_AFFINE_INPUT_GRADIENT, a, kernel, NULL, false, dx);
}

/* The product A^T B is this coordinate's share of the kernel's gradient: the sum is scattered over the columns. */
static int scatter_kernel_gradient(const struct sl_module *module, struct sl_context *context, const void *a,
                                   const void *b) {
    const struct sl_group *data = data_peers_of(module, context);
    const size_t in = (size_t)module->in, columns = (size_t)(module->whole / data->size);
    const size_t shape[] = {in, (size_t)module->whole};
    float *gradient = sl_gradient(module, context, SL_AFFINE_KERNEL), *share = room(module, context, KERNEL);
    float *sum = context->accumulate ? room(module, context, SHARD) : gradient;
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_WEIGHT_GRADIENT, a, b, NULL, false, share));
    SL_TRY(communicate(context, SL_HERE, sl_describe_psum_scatter_dim(data, SL_F32, share, sum, 2, shape, 1)));
    if (context->accumulate) context->kernels->add(in * columns, sum, gradient);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    const float *all;
    SL_TRY(gather_gradient(module, context, rows, dy, &all));
    context->kernels->column_sums(rows, (size_t)module->whole, all, context->accumulate,
                                  sl_gradient(module, context, SL_AFFINE_BIAS));
    const void *a = sl_affine_operand(module, context, SL_AFFINE_X, rows * (size_t)module->in, x);
    const void *b = sl_affine_operand(module, context, SL_AFFINE_DY, rows * (size_t)module->whole, all);
    if (module->data_group >= 0) return scatter_kernel_gradient(module, context, a, b);
    return sl_affine_multiply(module, context, SL_AFFINE_WEIGHT_GRADIENT, a, b, NULL, context->accumulate,
                              sl_gradient(module, context, SL_AFFINE_KERNEL));
}

/* ---- construction ---- */

static const struct sl_module_type sharded_dense = {"sharded_dense", plan, forward, backward_input, backward_weight};
static const struct sl_module_type summed_dense = {"summed_dense", plan, forward, backward_input, backward_weight};

static struct sl_module *new_dense(const struct sl_module_type *type, const char *name, int in, int out, int shards,
                                   const struct sl_channels *channels) {
    struct sl_module *module =
        sl_module_new(type, name, in / sl_mesh_axis_size(channels->mesh, channels->axis), out / shards);
    if (!module) return NULL;
    module->whole_in = in;
    module->whole = out;
    module->segments_in = module->segments_out = 1;
    snprintf(module->axis, sizeof module->axis, "%s", channels->axis);
    return module;
}

struct sl_module *sl_sharded_dense(const char *name, int in, int out, int segments_in, int segments_out,
                                   const struct sl_channels *channels) {
    const int shards = sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = new_dense(&sharded_dense, name, in, out, shards, channels);
    if (!module) return NULL;
    module->segments_in = segments_in;
    module->segments_out = segments_out;
    return module;
}

struct sl_module *sl_summed_dense(const char *name, int in, int out, int segments_in,
                                  const struct sl_channels *channels) {
    struct sl_module *module = new_dense(&summed_dense, name, in, out, 1, channels);
    if (module) module->segments_in = segments_in;
    return module;
}
