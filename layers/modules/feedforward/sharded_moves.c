/* sharded_moves.c - moves the rows of sharded_dense.c over the axis: at once, or in pieces beside their products. */
#include "layers/modules/feedforward/sharded_dense_internal.h"
#include "layers/modules/sharded_channels.h"

#include <stdio.h>

/* ---- at once ---- */

/* TO [count] = the sum of all peers' FROM. */
static int sum_all(const struct sl_module *module, struct sl_context *context, const void *from, float *to,
                   size_t count) {
    const int group = own(module)->group;
    const struct sl_group *peers = sl_group_of(context, group);
    return sl_communicate(context, context->groups->by_tree[group]
                                       ? sl_describe_psum_tree(peers, SL_F32, from, to, count)
                                       : sl_describe_psum(peers, SL_F32, from, to, count));
}

int sl_sharded_gather(const struct sl_module *module, struct sl_context *context, size_t rows, enum sl_dtype type,
                      const void *dy, const float **all) {
    const struct sharded *dense = own(module);
    const struct sl_group *peers = sl_group_of(context, dense->group);
    struct sl_sharded_move move = sl_sharded_move(dense, (size_t)context->sequence, rows);
    *all = dy;
    if (!peers) return SL_OK;
    float *columns = sl_at(context, &dense->columns);
    *all = columns;
    if (!dense->scatters) return sum_all(module, context, dy, columns, rows * (size_t)dense->whole);
    move.shape[move.dim] /= (size_t)peers->size;
    return sl_communicate(context, sl_describe_all_gather_dim(peers, type, dy, columns, 3, move.shape, move.dim));
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

/* ---- in pieces ---- */

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
        status = sl_products_forward(context, products, 1, (const char *)a + i * bytes, kernel, NULL, own_share, NULL);
        sl_trace_piece(context->trace, SL_TRACE_PRODUCT, "multiply", (int)i, began);
        if (status == SL_OK) status = scatter_one(&walk, context, own_share, y + i * walk.rows * walk.out);
    }
    return end_all(&walk, context, status);
}

/* Starts to gather the next piece, if there is one. */
static int gather_one(struct walk *walk, struct sl_context *context, const void *dy, void *all) {
    const struct sharded *dense = walk->dense;
    const enum sl_dtype dtype = dense->products.input_gradient.dtype;
    const size_t segments = (size_t)dense->segments_out, shape[] = {walk->rows, segments, walk->out / segments};
    const size_t first = (size_t)walk->started * walk->rows * sl_dtype_size(dtype);
    if (walk->started == walk->count) return SL_OK;
    return start_one(walk, context,
                     sl_describe_all_gather_dim(walk->peers, dtype, (const char *)dy + first * walk->out,
                                                (char *)all + first * walk->whole, 3, shape, 2));
}

/* Multiplies piece I, after it has been gathered. */
static int multiply_one(const struct walk *walk, struct sl_context *context, size_t i, const void *all,
                        const void *kernel, float *dx) {
    const struct sl_products *products = &walk->dense->products;
    const size_t bytes = walk->rows * walk->whole * sl_dtype_size(products->input_gradient.dtype);
    const size_t first = i * walk->rows * walk->in;
    struct sl_result *const result = context->result;
    struct sl_result part = result ? *result : (struct sl_result){0};
    const double began = sl_trace_now(context->trace);
    if (part.stored) part.stored += first;
    SL_TRY(sl_products_input_gradient(context, products, 1, (const char *)all + i * bytes, kernel, false, dx + first,
                                      result ? &part : NULL));
    if (result) result->done = part.done;
    sl_trace_piece(context->trace, SL_TRACE_PRODUCT, "multiply", (int)i, began);
    return SL_OK;
}

int sl_sharded_gradient_in_pieces(const struct sl_module *module, struct sl_context *context, const void *dy,
                                  const void *kernel, const float **all, float *dx) {
    struct walk walk = begin(module, context, "gather");
    float *columns = sl_at(context, &walk.dense->columns);
    int status = SL_OK;
    *all = columns;
    for (int i = 0; status == SL_OK && i < SL_MAX_IN_FLIGHT; i++) status = gather_one(&walk, context, dy, columns);
    for (size_t i = 0; status == SL_OK && i < (size_t)walk.count; i++) {
        status = end_one(&walk, context);
        if (status == SL_OK) status = gather_one(&walk, context, dy, columns);
        if (status == SL_OK) status = multiply_one(&walk, context, i, columns, kernel, dx);
    }
    return end_all(&walk, context, status);
}
