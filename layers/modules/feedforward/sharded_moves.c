/* sharded_moves.c - moves the rows of sharded_dense.c over the axis: at once, or in pieces beside their products. Also
 * gathers its kernel, or turns it to columns of the axis's coordinates, and their gradients back to rows. */
#include "layers/modules/feedforward/sharded_dense_internal.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"
#include "spmd/device/device.h"

#include <stdio.h>

/* ---- the kernel ---- */

/* Makes CALL, which gathers values from SHARD over the data group; if the members' memory can be read, they need not
 * take part. */
static int gather_values(const struct sl_module *module, struct sl_context *context, const void *shard,
                         struct sl_collective call) {
    const char *const *memory = context->groups->memory[own(module)->data_group];
    if (!memory) return sl_communicate(context, call);
    const size_t offset = (size_t)((const char *)shard - (const char *)context->parameters->memory);
    const void *input[call.group->size];
    for (int i = 0; i < call.group->size; i++) input[i] = memory[i] + offset;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_gather_from(context->self, input, call);
    sl_profile_end(context->profile, before);
    return status;
}

int sl_sharded_kernel(const struct sl_module *module, struct sl_context *context, const void **kernel) {
    const struct sharded *dense = own(module);
    const struct sl_group *data = sl_group_of(context, dense->data_group);
    if (dense->gathered >= 0) {
        *kernel = sl_gathered_kernel(context->gathers, dense->gathered);
        return SL_OK;
    }
    const void *shard = *kernel = sl_products_kernel(&dense->products, module, context);
    if (!data || sl_parameter_is_whole(context->parameters, module->parameter[SL_AFFINE_KERNEL])) return SL_OK;
    void *all = sl_at(context, &dense->kernel);
    *kernel = all;
    const size_t shape[] = {sl_sharded_runs(dense), sl_sharded_run(dense) / (size_t)data->size};
    return gather_values(module, context, shard,
                         sl_describe_all_gather_dim(data, dense->products.kernel, shard, all, 2, shape, 1));
}

/* The same as sl_sharded_dense_columns for kernels stored as bf16. */
static int widen_columns(const struct sl_module *module, struct sl_context *context, float *y) {
    const struct sharded *dense = own(module);
    const struct sl_group *peers = sl_group_of(context, dense->group);
    const size_t in = (size_t)module->in, whole = (size_t)dense->whole, segments = (size_t)dense->segments_out;
    const size_t shape[] = {in, segments, whole / segments};
    const void *kernel;
    SL_TRY(sl_sharded_kernel(module, context, &kernel));
    if (peers) {
        void *all = sl_at(context, &dense->exchanged);
        SL_TRY(sl_communicate(context, sl_describe_all_to_all(peers, SL_BF16, kernel, all, 3, shape, 2, 0)));
        kernel = all;
    }
    context->kernels->widen_bf16(in * whole, kernel, y);
    return SL_OK;
}

int sl_sharded_dense_columns(const struct sl_module *module, struct sl_context *context, float *y) {
    const struct sharded *dense = own(module);
    const struct sl_group *data = sl_group_of(context, dense->data_group), *peers = sl_group_of(context, dense->group);
    const size_t in = (size_t)module->in, whole = (size_t)dense->whole, segments = (size_t)dense->segments_out;
    const size_t shape[] = {in, segments, whole / segments};
    if (dense->by_columns ? dense->products.kernel == SL_BF16 : context->parameters->working_bf16)
        return widen_columns(module, context, y);
    const float *kernel = sl_value(module, context, SL_AFFINE_KERNEL);
    const bool ahead = dense->by_columns && dense->gathered >= 0;
    const bool gathers =
        data && !ahead && !sl_parameter_is_whole(context->parameters, module->parameter[SL_AFFINE_KERNEL]);
    if (ahead) kernel = sl_gathered_kernel(context->gathers, dense->gathered);
    if (gathers) {
        const size_t shard[] = {sl_sharded_runs(dense), sl_sharded_run(dense) / (size_t)data->size};
        float *all = peers ? sl_at(context, &dense->kernel) : y;
        SL_TRY(
            gather_values(module, context, kernel, sl_describe_all_gather_dim(data, SL_F32, kernel, all, 2, shard, 1)));
        kernel = all;
    }
    if (peers) return sl_communicate(context, sl_describe_all_to_all(peers, SL_F32, kernel, y, 3, shape, 2, 0));
    if (!gathers) context->kernels->sequence->copy_block(in, whole, kernel, whole, y, whole);
    return SL_OK;
}

/* ---- products by the parent ---- */

void sl_sharded_dense_by_columns(struct sl_module *module, bool by_columns) {
    ((struct sharded *)module)->by_columns = by_columns;
}

/* The parent takes the columns in forward and in I, and gives their gradient in I. */
static void count(const struct sharded *dense, const struct sl_plan *plan) {
    const double kernel = (double)dense->module.in * dense->whole, each = 1.0 / (double)sl_plan_run(plan);
    const double bytes = kernel * (double)sl_dtype_size(dense->products.kernel), size = sizeof(float);
    const char *data = dense->data_group < 0 ? NULL : plan->groups->group[dense->data_group].name;
    const bool trains = sl_plan_trains(plan, SL_AFFINE_KERNEL);
    if (dense->gathered >= 0 && plan->load && !plan->parameters->wholes) plan->load->loop[plan->loop].gathered += bytes;
    for (enum sl_load_part part = SL_LOAD_FORWARD; part <= (plan->forward_only ? SL_LOAD_FORWARD : SL_LOAD_INPUT);
         part++) {
        if (dense->gathered < 0) sl_load_call(plan, part, SL_ALL_GATHER, data, bytes * each, each);
        sl_load_call(plan, part, SL_ALL_TO_ALL, dense->axis, bytes * each, each);
    }
    if (!trains) return;
    sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_TO_ALL, dense->axis, kernel * size, 1);
    sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_GATHER, dense->axis, dense->whole * size, 1);
    sl_load_floats(plan, SL_LOAD_WEIGHT, SL_LOAD_MOVES, 2 * kernel);
    sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM_SCATTER, data, kernel * size / plan->wgrad_group,
                 1.0 / plan->wgrad_group);
}

int sl_sharded_plan_columns(struct sharded *dense, struct sl_plan *plan) {
    struct sl_module *module = &dense->module;
    const size_t whole = (size_t)dense->whole;
    sl_products_release(&dense->products);
    dense->products = (struct sl_products){.kernel = sl_plan_kernel_type(plan)};
    if (dense->products.kernel == SL_BF16) sl_plan_rounded_values(plan);
    module->x = module->y = (struct sl_use){.lasts = SL_UNTIL_RETURN};
    if (plan->load) count(dense, plan);
    if (sl_plan_trains(plan, SL_AFFINE_BIAS)) SL_TRY(sl_plan_array(plan, whole, SL_FROM_INPUT, &dense->sums));
    if (!sl_plan_trains(plan, SL_AFFINE_KERNEL)) return SL_OK;
    return sl_plan_array(plan, (size_t)module->in * whole, SL_FROM_INPUT, &dense->given);
}

int sl_sharded_dense_give(const struct sl_module *module, struct sl_context *context, size_t microbatch,
                          const float *kernel, const float *bias) {
    const struct sharded *dense = own(module);
    const struct sl_group *peers = sl_group_of(context, dense->group);
    const size_t in = (size_t)module->in, whole = (size_t)dense->whole, segments = (size_t)dense->segments_out;
    const size_t out = (size_t)module->out / segments, shape[] = {in * whole / (out * segments), segments, out};
    const bool trains = !sl_is_frozen(module, context, SL_AFFINE_KERNEL),
               adds = !sl_is_frozen(module, context, SL_AFFINE_BIAS);
    float *const given = (float *)sl_at(context, &dense->given) + microbatch * in * whole;
    float *const sums = (float *)sl_at(context, &dense->sums) + microbatch * whole;
    if (!peers && trains) sl_device.copy(given, kernel, in * whole * sizeof *given);
    if (!peers && adds) sl_device.copy(sums, bias, whole * sizeof *sums);
    if (!peers) return SL_OK;
    if (trains) SL_TRY(sl_communicate(context, sl_describe_all_to_all(peers, SL_F32, kernel, given, 3, shape, 0, 2)));
    if (!adds) return SL_OK;
    return sl_communicate(context, sl_describe_all_gather_dim(peers, SL_F32, bias, sums, 2, shape + 1, 1));
}

int sl_sharded_add_given(const struct sl_module *module, struct sl_context *context, bool accumulate, float *gradient) {
    const struct sharded *dense = own(module);
    context->kernels->column_sums((size_t)context->wgrad_group, (size_t)module->in * (size_t)dense->whole,
                                  sl_at(context, &dense->given), accumulate, gradient);
    return SL_OK;
}

/* ---- rows at once ---- */

/* TO [count] = the sum of all peers' FROM. */
static int sum_all(const struct sl_module *module, struct sl_context *context, const void *from, float *to,
                   size_t count) {
    const int group = own(module)->group;
    const struct sl_group *peers = sl_group_of(context, group);
    return sl_communicate(context, context->groups->by_tree[group]
                                       ? sl_describe_psum_tree(peers, SL_F32, from, to, count)
                                       : sl_describe_psum(peers, SL_F32, from, to, count));
}

int sl_sharded_gather(const struct sl_module *module, struct sl_context *context, size_t rows, struct sl_rows dy,
                      struct sl_rows *all) {
    const struct sharded *dense = own(module);
    const struct sl_group *peers = sl_group_of(context, dense->group);
    struct sl_sharded_move move = sl_sharded_move(dense, (size_t)context->sequence, rows);
    *all = dy;
    if (!peers) return SL_OK;
    *all = sl_rows_of(dy.type, sl_at(context, &dense->columns));
    if (!dense->scatters) return sum_all(module, context, dy.at, all->at, rows * (size_t)dense->whole);
    move.shape[move.dim] /= (size_t)peers->size;
    return sl_communicate(context, sl_describe_all_gather_dim(peers, dy.type, dy.at, all->at, 3, move.shape, move.dim));
}

int sl_sharded_add_up(const struct sl_module *module, struct sl_context *context, const float *share, float *y) {
    const struct sharded *dense = own(module);
    const struct sl_group *peers = sl_group_of(context, dense->group);
    const size_t rows = (size_t)context->rows;
    const struct sl_sharded_move move = sl_sharded_move(dense, (size_t)context->sequence, rows);
    if (!peers) return SL_OK;
    if (!dense->scatters) return sum_all(module, context, share, y, rows * (size_t)dense->whole);
    const bool by_tree = context->groups->by_tree[dense->group];
    return sl_communicate(context, sl_describe_shares_of_sum(by_tree, peers, share, y, 3, move.shape, move.dim));
}

/* ---- rows in pieces ---- */

/* The pieces of a call, and the unfinished moves. */
struct walk {
    const struct sharded *dense;
    const char *move; /* name of the moves in a trace */
    const struct sl_group *peers;
    int count, started, ended;
    size_t rows, in, out, whole; /* rows of a piece; columns of x, of y and of all members' y */
    struct sl_request request[SL_MAX_IN_FLIGHT];
    double began[SL_MAX_IN_FLIGHT]; /* times when these moves started */
};

static struct walk begin(const struct sl_module *module, const struct sl_context *context, const char *move) {
    const struct sharded *dense = own(module);
    const int count = (int)sl_call_microbatches(context) * dense->pieces;
    return (struct walk){.dense = dense,
                         .move = move,
                         .peers = sl_group_of(context, dense->group),
                         .count = count,
                         .rows = (size_t)(context->rows / count),
                         .in = (size_t)module->in,
                         .out = (size_t)module->out,
                         .whole = (size_t)dense->whole};
}

static int end_one(struct walk *walk, struct sl_context *context) {
    const int i = walk->ended++, slot = i % SL_MAX_IN_FLIGHT;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_wait(context->self, &walk->request[slot]);
    sl_profile_end(context->profile, before);
    sl_trace_piece(context->trace, SL_TRACE_MOVE, walk->move, i, walk->began[slot]);
    return status;
}

static int start_one(struct walk *walk, struct sl_context *context, struct sl_collective call) {
    if (walk->started - walk->ended == SL_MAX_IN_FLIGHT) SL_TRY(end_one(walk, context));
    const int slot = walk->started % SL_MAX_IN_FLIGHT;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    walk->began[slot] = sl_trace_now(context->trace);
    const int status = sl_start(context->self, &walk->request[slot], SL_HERE, call);
    walk->started += status == SL_OK;
    sl_profile_end(context->profile, before);
    return status;
}

/* Waits for all moves, even after a failure: their requests lie in the caller's memory. */
static int end_all(struct walk *walk, struct sl_context *context, int status) {
    while (walk->ended < walk->started) {
        const int ended = end_one(walk, context);
        if (status == SL_OK) status = ended;
    }
    return status;
}

static int scatter_one(struct walk *walk, struct sl_context *context, const float *share, float *y) {
    const struct sharded *dense = walk->dense;
    const size_t segments = (size_t)dense->segments_out, shape[] = {walk->rows, segments, walk->whole / segments};
    const bool by_tree = context->groups->by_tree[dense->group];
    return start_one(walk, context, sl_describe_shares_of_sum(by_tree, walk->peers, share, y, 3, shape, 2));
}

int sl_sharded_forward_in_pieces(const struct sl_module *module, struct sl_context *context, const void *a,
                                 const void *kernel, float *share, float *y) {
    struct walk walk = begin(module, context, "scatter");
    const struct sl_products *products = &walk.dense->products;
    const size_t bytes = walk.rows * walk.in * sl_dtype_size(products->forward.dtype);
    int status = SL_OK;
    for (size_t i = 0; status == SL_OK && i < (size_t)walk.count; i++) {
        const double began = sl_trace_now(context->trace);
        float *own_share = share + i * walk.rows * walk.whole;
        status =
            sl_products_forward(context, products, 1, (const char *)a + i * bytes, kernel, NULL, SL_INTO(own_share));
        sl_trace_piece(context->trace, SL_TRACE_PRODUCT, "multiply", (int)i, began);
        if (status == SL_OK) status = scatter_one(&walk, context, own_share, y + i * walk.rows * walk.out);
    }
    return end_all(&walk, context, status);
}

/* Starts to gather the next piece, if there is one. */
static int gather_one(struct walk *walk, struct sl_context *context, struct sl_rows dy, void *all) {
    const struct sharded *dense = walk->dense;
    const size_t segments = (size_t)dense->segments_out, shape[] = {walk->rows, segments, walk->out / segments};
    const size_t first = (size_t)walk->started * walk->rows * sl_dtype_size(dy.type);
    if (walk->started == walk->count) return SL_OK;
    return start_one(walk, context,
                     sl_describe_all_gather_dim(walk->peers, dy.type, (const char *)dy.at + first * walk->out,
                                                (char *)all + first * walk->whole, 3, shape, 2));
}

/* Multiplies piece I, after it has been gathered. */
static int multiply_one(const struct walk *walk, struct sl_context *context, size_t i, const void *all,
                        const void *kernel, struct sl_result *dx) {
    const struct sl_products *products = &walk->dense->products;
    const size_t bytes = walk->rows * walk->whole * sl_dtype_size(products->input_gradient.dtype);
    const size_t first = i * walk->rows * walk->in;
    struct sl_result part = *dx;
    const double began = sl_trace_now(context->trace);
    part.floats += first;
    if (part.halves) part.halves += first;
    SL_TRY(sl_products_input_gradient(context, products, 1, (const char *)all + i * bytes, kernel, false, &part));
    dx->made = part.made;
    sl_trace_piece(context->trace, SL_TRACE_PRODUCT, "multiply", (int)i, began);
    return SL_OK;
}

int sl_sharded_gradient_in_pieces(const struct sl_module *module, struct sl_context *context, struct sl_rows dy,
                                  const void *kernel, struct sl_rows *all, struct sl_result *dx) {
    struct walk walk = begin(module, context, "gather");
    float *columns = sl_at(context, &walk.dense->columns);
    int status = SL_OK;
    *all = sl_rows_of(dy.type, columns);
    for (int i = 0; status == SL_OK && i < SL_MAX_IN_FLIGHT; i++) status = gather_one(&walk, context, dy, columns);
    for (size_t i = 0; status == SL_OK && i < (size_t)walk.count; i++) {
        status = end_one(&walk, context);
        if (status == SL_OK) status = gather_one(&walk, context, dy, columns);
        if (status == SL_OK) status = multiply_one(&walk, context, i, columns, kernel, dx);
    }
    return end_all(&walk, context, status);
}
