/* context.c - attention of each block to gathered keys, and the sums of the keys' gradients for their owners. */
#include "layers/modules/sequence/context_internal.h"
#include "spmd/device/device.h"

/* ---- planning ---- */

double sl_plan_pairs(const struct sl_plan *plan, int window) {
    const double sequence = sl_plan_whole_sequence(plan);
    const double most = window > 0 && window < sequence ? window : sequence;
    return plan->rows / sequence * (most * (most + 1) / 2 + (sequence - most) * most);
}

/* In a ring the host reads places, and between its steps; leaves are added up by the host's copies. Tensor cores'
 * kernels take whole sequences. */
static int check_device(const struct sl_plan *plan, const struct sl_attention *shape) {
    const bool by_host = plan->context_by == SL_CONTEXT_BY_RING || plan->cut.leaves;
    if (sl_kernels_select()->attention->takes_parts(shape) && (sl_device.shares_memory || !by_host)) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: device %s takes sequences divided over \"%s\" only without a ring, without --exact, and "
                        "with products of float32",
                        plan->name, plan->module->type->name, sl_device.name, plan->context_axis);
}

/* Blocks of a coordinate's rows of a sequence, each with attention calls of its own. */
static int own_blocks(struct sl_cut cut) { return cut.leaves ? sl_cut_own_blocks(cut) : sl_cut_blocks(cut); }
/* Number of this coordinate's leaves; without leaves, all its blocks count as one leaf. */
static int leaves_of(struct sl_cut cut) { return cut.leaves ? sl_cut_own_blocks(cut) / 2 : 1; }

/* Plans the largest call of backward: the last block. */
static void plan_scratch(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys) {
    struct sl_attention last = *shape;
    last.sequences = 1;
    last.queries = (size_t)(sl_plan_whole_sequence(plan) / (own_blocks(plan->cut) * sl_cut_parts(plan->cut)));
    last.key_rows = (size_t)sl_plan_whole_sequence(plan);
    last.position = last.key_rows - last.queries;
    sl_plan_workspace(plan, sl_kernels_select()->attention->scratch(&last), &keys->scratch);
}

/* Backward gathers again, and scatters the gradients. Both are put in order by copies. */
static void count(const struct sl_plan *plan, size_t columns) {
    const double all = (double)plan->rows * sl_cut_parts(plan->cut) * (double)columns, bytes = all * sizeof(float);
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 2 * all);
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, 4 * all);
    if (sl_cut_parts(plan->cut) == 1) return;
    sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, plan->context_axis, bytes, 1);
    if (plan->forward_only) return;
    sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_GATHER, plan->context_axis, bytes, 1);
    sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM_SCATTER, plan->context_axis, bytes, 1);
}

void sl_plan_context_moves(struct sl_plan *plan, struct sl_context_keys *keys) {
    const size_t rows = sl_plan_rows(plan) * (size_t)sl_cut_parts(plan->cut);
    size_t most = 0;
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) {
        const size_t bytes = rows * keys->columns[i] * sizeof(float);
        const bool moves = !keys->computed || i > 0;
        if (!bytes) continue;
        most = moves && bytes > most ? bytes : most;
        sl_plan_workspace(plan, bytes, &keys->whole[i]);
        if (moves) count(plan, keys->columns[i]);
        if (plan->forward_only) continue;
        sl_plan_workspace(plan, bytes, &keys->gradient[i]);
        sl_plan_workspace(plan, sl_tree_levels(leaves_of(plan->cut)) * bytes, &keys->waiting[i]);
    }
    sl_plan_workspace(plan, most, &keys->moved);
}

static int refuse_latents(const struct sl_plan *plan) {
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%slatents: only latent attention has latents to gather over \"%s\" (--context-by latents)",
                        plan->name, plan->context_axis);
}

int sl_plan_context(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys) {
    keys->group = -1;
    if (!plan->context_axis) return SL_OK;
    SL_TRY(check_device(plan, shape));
    keys->divided = true;
    keys->by_heads = plan->context_by == SL_CONTEXT_BY_HEADS;
    keys->by_ring = plan->context_by == SL_CONTEXT_BY_RING;
    if (sl_cut_parts(plan->cut) > 1) SL_TRY(sl_plan_group(plan, plan->context_axis, &keys->group));
    if (keys->by_heads) return sl_plan_context_heads(plan, shape, keys);
    if (keys->by_ring) return sl_plan_context_ring(plan, shape, keys);
    if (plan->context_by == SL_CONTEXT_BY_LATENTS && !keys->computed) return refuse_latents(plan);
    sl_plan_context_moves(plan, keys);
    if (plan->forward_only) return SL_OK;
    plan_scratch(plan, shape, keys);
    sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES,
                   (double)sl_cut_parts(plan->cut) * plan->rows * (double)(keys->columns[0] + keys->columns[1]));
    return SL_OK;
}

/* ---- calls ---- */

/* A call of attention's kernels: one block of a sequence's queries, and the sequence's keys. */
struct part {
    struct sl_attention shape;
    size_t row;                      /* the first query */
    const char *k, *v, *k_rope;      /* the sequence's keys */
    size_t first[SL_CONTEXT_ARRAYS]; /* elements before them */
};

static const void *element(enum sl_dtype dtype, const void *x, size_t i) {
    return x ? (const char *)x + i * sl_dtype_size(dtype) : NULL;
}

/* Returns part NUMBER of a call: sequence by sequence, block by block. DTYPE: of the keys. */
static struct part part_of(const struct sl_context *context, const struct sl_context_keys *keys,
                           const struct sl_attention *all, int number, enum sl_dtype dtype) {
    const struct sl_cut cut = context->cut;
    const int own = own_blocks(cut);
    const size_t rows = all->queries * (size_t)sl_cut_own_blocks(cut) / (size_t)own;
    const size_t whole = rows * (size_t)own * (size_t)sl_cut_parts(cut), first = (size_t)(number / own) * whole;
    struct part part = {.shape = *all, .row = (size_t)number * rows};
    part.shape.sequences = 1;
    part.shape.queries = rows;
    part.shape.position = (size_t)sl_cut_number(cut, own, number % own) * rows;
    part.shape.key_rows = whole;
    if (sl_device.shares_memory && sl_context_sees_all(all->places, part.row, rows, part.shape.position))
        part.shape.places = NULL;
    else
        part.shape.places = all->places + part.row;
    part.shape.adds = true;
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) part.first[i] = first * keys->columns[i];
    part.k = element(dtype, sl_at(context, &keys->whole[0]), part.first[0]);
    if (keys->beside) {
        part.v = element(dtype, part.k, all->key_stride / 2);
        part.k_rope = all->rope ? element(dtype, sl_at(context, &keys->whole[1]), part.first[1]) : NULL;
    } else {
        part.v = element(dtype, sl_at(context, &keys->whole[1]), part.first[1]);
    }
    return part;
}

/* Number of parts of a call. */
static int parts_of(const struct sl_context *context) {
    return own_blocks(context->cut) * sl_context_sequences(context->cut, context->rows, context->sequence);
}

int sl_context_forward(struct sl_context *context, const struct sl_context_keys *keys, const struct sl_attention *shape,
                       const struct sl_context_call *call) {
    const size_t heads = shape->heads, columns = heads * shape->width;
    if (keys->by_heads) return sl_context_heads_forward(context, keys, shape, call);
    if (keys->by_ring) return sl_context_ring_forward(context, keys, shape, call);
    for (int i = keys->computed; i < SL_CONTEXT_ARRAYS; i++)
        SL_TRY(sl_context_gather(context, keys, i, SL_F32, call->own[i]));
    for (int number = 0; number < parts_of(context); number++) {
        const struct part part = part_of(context, keys, shape, number, SL_F32);
        context->kernels->attention->forward(&part.shape, element(SL_F32, call->q, part.row * columns),
                                             element(SL_F32, call->q_rope, part.row * heads * shape->rope), part.k,
                                             part.v, part.k_rope, sl_out_from(call->to, part.row * columns),
                                             call->logsum + part.row * heads);
    }
    return SL_OK;
}

/* Sets TREE[i] to the sums, over leaves, of the gradients of the whole sequences' array i. */
static void begin_trees(const struct sl_context *context, const struct sl_context_keys *keys, struct sl_tree *tree) {
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++)
        tree[i] = (struct sl_tree){
            .kernels = context->kernels,
            .n = (size_t)context->rows * (size_t)sl_cut_parts(context->cut) * keys->columns[i],
            .first = sl_at(context, &keys->gradient[i]),
            .room = sl_at(context, &keys->waiting[i]),
        };
}

/* Adds a part's gradients of keys to D_KEYS, the gradients of the whole sequences' keys. */
static void backward_part(struct sl_context *context, const struct sl_context_keys *keys,
                          const struct sl_attention *shape, const struct sl_context_call *call, int number,
                          float *const *d_keys) {
    const size_t heads = shape->heads, columns = heads * shape->width;
    const struct part part = part_of(context, keys, shape, number, shape->stored);
    const size_t query = part.row * columns, rotated = part.row * heads * shape->rope;
    float *const dk = d_keys[0] + part.first[0], *const other = keys->columns[1] ? d_keys[1] + part.first[1] : NULL;
    context->kernels->attention->backward(
        &part.shape, element(shape->stored, call->q, query), element(shape->stored, call->q_rope, rotated), part.k,
        part.v, part.k_rope, element(shape->stored_o, call->o, query), call->logsum + part.row * heads,
        call->d_o + query, sl_out_from(call->dq, query), call->dq_rope ? call->dq_rope + rotated : NULL, sl_out_f32(dk),
        sl_out_f32(keys->beside ? dk + shape->key_stride / 2 : other), keys->beside ? other : NULL,
        sl_at(context, &keys->scratch));
}

/* Computes the gradients of all sequences' blocks of LEAF. */
static void backward_leaf(struct sl_context *context, const struct sl_context_keys *keys,
                          const struct sl_attention *shape, const struct sl_context_call *call, int leaf,
                          const struct sl_tree *tree) {
    float *d_keys[SL_CONTEXT_ARRAYS];
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) {
        d_keys[i] = sl_tree_summand(&tree[i], leaf);
        context->kernels->fill(tree[i].n, 0.0f, d_keys[i]);
    }
    for (int number = 0; number < parts_of(context); number++)
        if (!context->cut.leaves || sl_cut_leaf(context->cut, number) == leaf)
            backward_part(context, keys, shape, call, number, d_keys);
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) sl_tree_add(&tree[i], leaf);
}

int sl_context_backward(struct sl_context *context, const struct sl_context_keys *keys,
                        const struct sl_attention *shape, const struct sl_context_call *call) {
    struct sl_tree tree[SL_CONTEXT_ARRAYS];
    if (keys->by_heads) return sl_context_heads_backward(context, keys, shape, call);
    if (keys->by_ring) return sl_context_ring_backward(context, keys, shape, call);
    for (int i = keys->computed; i < SL_CONTEXT_ARRAYS; i++)
        SL_TRY(sl_context_gather(context, keys, i, shape->stored, call->own[i]));
    begin_trees(context, keys, tree);
    for (int leaf = 0; leaf < leaves_of(context->cut); leaf++) backward_leaf(context, keys, shape, call, leaf, tree);
    for (int i = keys->computed; i < SL_CONTEXT_ARRAYS; i++)
        SL_TRY(sl_context_scatter(context, keys, i, call->d_own[i]));
    return SL_OK;
}
