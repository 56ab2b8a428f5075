/* sharded_plan.c - plans the modules of sharded_dense.c. */
#include "layers/modules/feedforward/sharded_dense_internal.h"
#include "layers/modules/sharded_channels.h"

#include <string.h>

static int plan_parameters(struct sharded *dense, struct sl_plan *plan) {
    const size_t shape[] = {(size_t)dense->whole_in, (size_t)dense->whole_out};
    const char *out = dense->out_axis;
    const float scale = sl_lecun_normal(shape[0]);
    SL_TRY(sl_plan_parameter_by_rule(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 2, shape));
    if (dense->biased) SL_TRY(sl_plan_parameter_by_rule(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &shape[1]));
    const char *data = sl_plan_sharding_axis(plan, SL_AFFINE_KERNEL, out ? 0 : 1);
    SL_TRY(sl_plan_expect_sharded(plan, SL_AFFINE_KERNEL, 0, out ? data : dense->axis, dense->segments_in));
    SL_TRY(sl_plan_expect_sharded(plan, SL_AFFINE_KERNEL, 1, out ? out : data, out ? dense->kernel_segments : 1));
    if (dense->biased) SL_TRY(sl_plan_expect_sharded(plan, SL_AFFINE_BIAS, 0, out, dense->kernel_segments));
    dense->data_group = -1;
    return data ? sl_plan_group(plan, data, &dense->data_group) : SL_OK;
}

/* The module gathers its kernel itself if plan->gathers does not. */
static int plan_gather(struct sharded *dense, struct sl_plan *plan) {
    const int kernel = dense->module.parameter[SL_AFFINE_KERNEL];
    const size_t rows = sl_sharded_runs(dense), columns = sl_sharded_run(dense);
    const enum sl_dtype dtype = sl_plan_kernel_type(plan);
    dense->gathered = -1;
    if (dense->data_group < 0) return SL_OK;
    plan->parameters->list[kernel].runs = rows;
    const bool late = plan->parameters->scatters_late, trains = sl_plan_trains(plan, SL_AFFINE_KERNEL);
    if (late && dense->out_axis)
        return sl_error_set(
            plan->error, SL_BAD_INPUT,
            "%s%s: kernels with sharded rows have no sums over leaves along \"%s\": leave out --fsdp, or "
            "take tensor layout columns",
            plan->name, plan->module->type->name, plan->groups->group[dense->data_group].name);
    if (late) sl_plan_gradient_parts(plan, SL_AFFINE_KERNEL, SL_OWN_ROWS);
    if (!plan->gathers || strcmp(plan->gathers->axis, plan->groups->group[dense->data_group].name) != 0 ||
        !sl_gathers_take(plan->gathers, rows, columns, dtype)) {
        plan->groups->shares[dense->data_group] = true;
        return SL_OK;
    }
    if (trains && !late) sl_scatters_add(plan->scatters, rows * columns);
    dense->gathered = sl_gathers_add(plan->gathers, plan->loop, kernel, rows, columns, dtype);
    return dense->gathered < 0 ? sl_error_set(plan->error, SL_FAILED, "no memory to gather kernels") : SL_OK;
}

static void plan_rows(struct sharded *dense, struct sl_plan *plan) {
    const bool trains = sl_plan_trains(plan, SL_AFFINE_KERNEL);
    const size_t group = (size_t)plan->rows * (size_t)(trains ? plan->wgrad_group : 1);
    const size_t rows = sl_plan_rows(plan) > group ? sl_plan_rows(plan) : group;
    if (dense->group >= 0) sl_plan_workspace(plan, rows * (size_t)dense->whole * sizeof(float), &dense->columns);
    if (dense->group >= 0 && plan->storage != SL_F32 && trains && !dense->scatters)
        sl_plan_workspace(plan, group * (size_t)dense->module.out * sizeof(float), &dense->own_dy);
}

static void plan_kernel(struct sharded *dense, struct sl_plan *plan) {
    const size_t in = (size_t)dense->module.in, out = (size_t)dense->whole;
    const bool trains = sl_plan_trains(plan, SL_AFFINE_KERNEL), working = plan->parameters->working_bf16;
    const bool rounds_only = !trains && sl_plan_kernel_type(plan) == SL_BF16 && (working || !plan->caches);
    const bool widens = dense->by_columns ? sl_plan_kernel_type(plan) == SL_BF16 : working && plan->caches;
    if (dense->group >= 0 && widens) sl_plan_workspace(plan, in * out * sizeof(uint16_t), &dense->exchanged);
    if (dense->data_group < 0 || dense->gathered >= 0) return;
    sl_plan_workspace(plan, in * out * sl_dtype_size(rounds_only ? SL_BF16 : SL_F32), &dense->kernel);
    if (!trains || plan->parameters->scatters_late) return;
    const size_t shard = plan->parameters->list[dense->module.parameter[SL_AFFINE_KERNEL]].count;
    sl_plan_workspace(plan, shard * sizeof(float), &dense->shard);
}

/* If requested, scatters and gathers of rows overlap with products, except in generation. */
static int plan_pieces(struct sharded *dense, const struct sl_plan *plan, int leaves) {
    const bool moves = dense->group >= 0 && dense->scatters && !plan->caches;
    dense->pieces = moves && dense->asked > 1 ? dense->asked : 1;
    if (dense->pieces == 1) return SL_OK;
    if (leaves)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: its rows cannot move over \"%s\" in %d pieces, as sums over it are those of leaves",
                            plan->name, plan->module->type->name, dense->axis, dense->pieces);
    if (plan->rows % dense->pieces == 0) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: %d rows of a microbatch do not divide into %d pieces",
                        plan->name, plan->module->type->name, plan->rows, dense->pieces);
}

/* For products, pieces are like microbatches of fewer rows. */
static int plan_products(struct sharded *dense, struct sl_plan *plan, const struct sl_products_shape *shape) {
    const int run = plan->run, repeat = dense->leaves.count > 1 ? dense->leaves.count : dense->pieces;
    if (dense->pieces > 1) plan->run = (int)sl_plan_run(plan) * dense->pieces;
    sl_load_repeat(plan, repeat);
    const int status = sl_products_plan(&dense->products, plan, shape);
    sl_load_repeat(plan, 1);
    plan->run = run;
    return status;
}

/* Returns whether all columns of dy stay in the workspace from I to W, so W need not gather them again. */
static bool keeps_columns(const struct sharded *dense, const struct sl_plan *plan) {
    if (!plan->weights_follow || !plan->nobody_waits || plan->wgrad_group > 1 || sl_plan_run(plan) > 1) return false;
    return plan->storage == SL_F32 || dense->products.takes_floats || plan->precision == SL_BF16;
}

static void count(const struct sharded *dense, const struct sl_plan *plan) {
    const double all = sizeof(float) * (double)plan->rows * dense->whole, group = plan->wgrad_group;
    const double kept = dense->scatters ? all / sizeof(float) * (double)sl_dtype_size(plan->storage) : all;
    const double dy = plan->precision == SL_BF16 ? kept : all;
    const double kernel = (double)dense->module.in * dense->whole, each = 1.0 / (double)sl_plan_run(plan);
    const double bytes = kernel * (double)sl_dtype_size(sl_plan_kernel_type(plan));
    const char *data = dense->data_group < 0 ? NULL : plan->groups->group[dense->data_group].name;
    if (dense->adds_up && dense->biased)
        sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 2.0 * plan->rows * dense->module.out);
    sl_load_call(plan, SL_LOAD_FORWARD, dense->scatters ? SL_PSUM_SCATTER : SL_PSUM, dense->axis, all,
                 each * dense->pieces);
    if (dense->gathered >= 0 && plan->load && !plan->parameters->wholes) plan->load->loop[plan->loop].gathered += bytes;
    if (dense->gathered < 0) sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, data, bytes * each, each);
    if (plan->forward_only) return;
    sl_load_call(plan, SL_LOAD_INPUT, dense->scatters ? SL_ALL_GATHER : SL_PSUM, dense->axis, dy, each * dense->pieces);
    if (dense->gathered < 0 && plan->has_dx) sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_GATHER, data, bytes * each, each);
    if (dense->adds_up && sl_plan_trains(plan, SL_AFFINE_BIAS) && !dense->products.sums)
        sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, (double)plan->rows * dense->whole);
    if (!sl_plan_trains(plan, SL_AFFINE_KERNEL)) return;
    if (!keeps_columns(dense, plan))
        sl_load_call(plan, SL_LOAD_WEIGHT, dense->scatters ? SL_ALL_GATHER : SL_PSUM, dense->axis, kept, 1 / group);
    sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM_SCATTER, data, sizeof(float) * kernel / group, 1 / group);
}

/* With peers the bias is added after the sum, and so only once. */
int sl_sharded_plan(struct sl_module *module, struct sl_plan *plan) {
    struct sharded *dense = (struct sharded *)module;
    SL_TRY(sl_plan_columns(plan, dense->axis, dense->whole_in, dense->segments_in));
    if (dense->out_axis) SL_TRY(sl_plan_columns(plan, dense->out_axis, dense->whole_out, dense->kernel_segments));
    if (dense->by_rows) SL_TRY(sl_plan_share_rows(plan, dense->axis));
    if (dense->scatters) SL_TRY(sl_plan_columns(plan, dense->axis, dense->whole, dense->segments_out));
    SL_TRY(sl_plan_group(plan, dense->axis, &dense->group));
    const int leaves = sl_plan_leaves(plan, dense->axis);
    dense->adds_up = dense->group >= 0 || leaves;
    SL_TRY(plan_pieces(dense, plan, leaves));
    SL_TRY(plan_parameters(dense, plan));
    SL_TRY(plan_gather(dense, plan));
    plan_kernel(dense, plan);
    if (dense->by_columns) return sl_sharded_plan_columns(dense, plan);
    plan_rows(dense, plan);
    module->x.lasts = sl_until_weight_if(sl_plan_trains(plan, SL_AFFINE_KERNEL));
    module->y.lasts = sl_from_input_if(sl_plan_trains(plan, SL_AFFINE_KERNEL));
    module->x.reads = sl_copy_if(plan->precision == SL_BF16);
    module->y.reads = sl_copy_if(plan->precision == SL_BF16 && (dense->group < 0 || dense->scatters));
    SL_TRY(sl_leaf_products_plan(&dense->leaves, plan, leaves, module->in, dense->segments_in, dense->whole));
    const struct sl_products_shape shape = {.precision = plan->precision,
                                            .in = (int)dense->leaves.width,
                                            .out = dense->whole,
                                            .rows = plan->rows / dense->pieces,
                                            .wgrad_rows = plan->rows * plan->wgrad_group,
                                            .epilogue =
                                                !dense->adds_up && dense->biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE,
                                            .kept = dense->group < 0 || dense->scatters,
                                            .own_kernel = dense->data_group < 0 && dense->leaves.count <= 1,
                                            .x_stride = dense->adds_up ? 0 : plan->x_stride,
                                            .biased = dense->biased && dense->leaves.count == 1};
    const int status = plan_products(dense, plan, &shape);
    sl_products_offer(&dense->products, module, plan, dense->biased, dense->adds_up, dense->leaves.count <= 1);
    if (plan->load) count(dense, plan);
    if (status == SL_OK && sl_plan_trains(plan, SL_AFFINE_BIAS) && !dense->products.sums)
        return sl_plan_array(plan, (size_t)dense->whole, SL_FROM_INPUT, &dense->sums);
    return status;
}
