/* mla.c - multi-head latent attention with decoupled rotary positions (DeepSeek-AI, "DeepSeek-V2", 2024); heads are
 * sharded over an axis.
 *
 *     x -- down -- latent = [kv | q] --+-- kv -- kv_up ---- [k | v] --+
 *                                      +-- q --- q_up ----- q --------+-- attention -- o -- out -- y
 *                                      +-------- k_rope, rotated -----+
 *                                      +-------- q_rope, rotated -----+
 *
 * By columns, all products are sharded and scatter their sums over columns: kv_up, q_up and q_rope yield whole heads.
 * The few columns of k_rope, shared by all heads, are the same everywhere. Attention thus needs no communication. By
 * rows, down multiplies a coordinate's rows; latents, of fewer columns than x, are gathered, and the products that read
 * them have shards of their kernels' columns. */
#include "layers/modules/sequence/mla/mla_internal.h"
#include "layers/modules/leaves.h"
#include "layers/modules/sequence/rope.h"
#include "layers/modules/sharded_channels.h"
#include "spmd/device/device.h"

const enum tensor sl_mla_input[CHILDREN] = {
    [KV_UP] = KV_LATENT, [Q_UP] = Q_LATENT, [OUT] = OUTPUT, [K_ROPE] = LATENT, [Q_ROPE] = LATENT};
const enum tensor sl_mla_gradient[CHILDREN] = {[DOWN] = D_LATENT,
                                               [KV_UP] = D_KEYS_VALUES,
                                               [Q_UP] = D_QUERIES,
                                               [K_ROPE] = D_ROTATED_KEYS,
                                               [Q_ROPE] = D_ROTATED_QUERIES};

/* ---- planning ---- */

static int check(const struct mla *mla, const struct sl_plan *plan) {
    const struct sl_mla *shape = &mla->shape;
    const int size = sl_plan_parts(plan, mla->axis);
    if (shape->dimension < 1 || shape->heads < 1 || shape->latent < 1 || shape->dimension % shape->heads)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sheads: %d columns, %d heads, latents of %d columns: all must be at least 1, and columns "
                            "divide by heads",
                            plan->name, shape->dimension, shape->heads, shape->latent);
    if (shape->heads % size)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%sheads: %d heads do not divide by the %d %s along \"%s\"",
                            plan->name, shape->heads, size, sl_plan_parts_name(plan, mla->axis), mla->axis);
    if (sl_plan_leaves(plan, mla->axis) && shape->rope && plan->storage == SL_BF16)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%srope: the gradient of a key that all heads share has no sums of bf16 over leaves along "
                            "\"%s\": choose --storage f32, or --rope-dim 0",
                            plan->name, mla->axis);
    if (shape->rope < 0 || shape->rope % 2)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%srope: %d columns cannot be rotated in pairs; there must be an even number", plan->name,
                            shape->rope);
    return sl_plan_positions(plan, shape->positions);
}

/* Plans the shares of coordinate INDEX of SIZE. */
static int plan_shares(struct mla *mla, int index, int size, struct sl_plan *plan) {
    const struct sl_mla *shape = &mla->shape;
    const int rotated = shape->rope * (shape->heads / size), whole = shape->rope * shape->heads;
    mla->heads = (size_t)(shape->heads / size);
    mla->columns = (size_t)(shape->dimension / size);
    mla->latent = (size_t)(shape->latent / (mla->whole_latents ? 1 : size));
    mla->rope = (size_t)shape->rope;
    mla->rotated = (size_t)rotated;
    if (shape->rope == 0) return SL_OK;
    const struct sl_rope keys = {.positions = shape->positions, .columns = shape->rope, .pairs = shape->rope / 2};
    const struct sl_rope queries = {
        .positions = shape->positions, .columns = whole, .first = index * (rotated / 2), .pairs = rotated / 2};
    SL_TRY(sl_rope_share(&plan->ropes, &keys, plan->sizes_only, plan->held, &mla->keys, plan->error));
    return sl_rope_share(&plan->ropes, &queries, plan->sizes_only, plan->held, &mla->queries, plan->error);
}

static int plan_children(struct sl_module *module, struct sl_plan *plan) {
    const size_t begin = plan->workspace;
    for (int i = 0; i < module->children; i++) {
        plan->x_stride = i == KV_UP || i == Q_UP ? sl_mla_latent_stride(sl_mla_of(module), plan) : 0;
        SL_TRY(sl_plan_child(plan, module->child[i], begin));
    }
    sl_plan_ends(module, module->child[DOWN], module->child[OUT]);
    module->x.reads = module->child[DOWN]->x.reads;
    return SL_OK;
}

/* Plans KEPT [rows, columns]. */
static int plan_tensor(struct sl_plan *plan, size_t columns, enum sl_lifetime lifetime, struct sl_kept *kept) {
    return sl_plan_kept(plan, (size_t)plan->rows * columns, lifetime, kept);
}

/* Leaves bf16 alone in arrays whose bf16 attention and products read. */
static void plan_alone(struct mla *mla, const struct sl_plan *plan) {
    struct sl_module *const *child = mla->module.child;
    struct sl_kept *kept = mla->kept;
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    const bool alone = sl_attention_alone(plan, &attention);
    mla->reads_stored = alone && kept[QUERIES].stores;
    if (mla->reads_stored) kept[QUERIES].form = kept[KEYS_VALUES].form = SL_ALONE;
    if (alone && kept[OUTPUT].form != SL_BESIDE)
        sl_plan_reader(&kept[OUTPUT], &child[OUT]->x); /* else I reads floats */
}

static int plan_forward(struct mla *mla, struct sl_plan *plan) {
    struct sl_module *const *child = mla->module.child;
    struct sl_kept *kept = mla->kept;
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    const size_t rows = (size_t)plan->rows;
    SL_TRY(sl_mla_plan_latents(mla, plan));
    if (!mla->by_latents && !sl_mla_absorbs(plan->caches, plan->sequence, 0))
        SL_TRY(sl_plan_attended(plan, &attention, rows * 2 * mla->columns, &kept[KEYS_VALUES]));
    SL_TRY(sl_plan_attended(plan, &attention, rows * mla->columns, &kept[QUERIES]));
    SL_TRY(sl_plan_kept_both(plan, child[OUT], rows * mla->columns, &kept[OUTPUT]));
    if (sl_reads_stored(plan, child[OUT])) sl_plan_kept_room(plan, &kept[OUTPUT]);
    SL_TRY(sl_plan_array(plan, rows * mla->heads, SL_UNTIL_INPUT, &kept[LOGSUM].values));
    plan_alone(mla, plan);
    if (!mla->rope) return SL_OK;
    SL_TRY(sl_plan_attended(plan, &attention, rows * mla->rope, &kept[ROTATED_KEYS]));
    return sl_plan_attended(plan, &attention, rows * mla->rotated, &kept[ROTATED_QUERIES]);
}

/* The form in which attention, rotation, sl_keep or sl_mla_latent_gradient leaves an operand, the gradient of child I's
 * y. */
static enum sl_form gradient_form(const struct mla *mla, const struct sl_plan *plan, int i) {
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    if (i == KV_UP && mla->context.divided) return SL_BESIDE;
    return (i == DOWN ? !mla->rope : i < OUT && sl_attention_alone(plan, &attention)) ? SL_ALONE : SL_ROUNDED;
}

static int plan_backward(struct mla *mla, struct sl_plan *plan) {
    const struct sl_module *module = &mla->module;
    struct sl_kept *kept = mla->kept;
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    const size_t columns[TENSORS] = {[D_LATENT] = 2 * mla->latent,
                                     [D_KEYS_VALUES] = 2 * mla->columns,
                                     [D_QUERIES] = mla->columns,
                                     [D_ROTATED_KEYS] = mla->rope,
                                     [D_ROTATED_QUERIES] = mla->rotated};
    for (int i = 0; i < module->children; i++) {
        if (i == OUT || (i == KV_UP && mla->by_latents)) continue;
        SL_TRY(sl_plan_kept_gradient(plan, module->child[i], (size_t)plan->rows * columns[sl_mla_gradient[i]],
                                     gradient_form(mla, plan, i), &kept[sl_mla_gradient[i]]));
    }
    const size_t part = mla->columns > 2 * mla->latent ? mla->columns : 2 * mla->latent;
    SL_TRY(plan_tensor(plan, part, SL_UNTIL_RETURN, &kept[PART]));
    sl_plan_output_gradient(plan, (size_t)plan->rows * mla->columns, &kept[PART].values, mla->reads_stored,
                            &kept[D_OUTPUT]);
    sl_plan_workspace(plan, sl_kernels_select()->attention->scratch(&attention), &mla->scratch);
    if (mla->leaves > 1)
        sl_plan_workspace(plan, (size_t)mla->leaves * sl_plan_rows(plan) * mla->rope * sizeof(float), &mla->leaf_keys);
    return SL_OK;
}

/* A token attends to itself and to earlier tokens. Backward computes five products of these sizes, forward two. In
 * addition latents are split and joined, and positions are rotated. */
static void count(const struct mla *mla, const struct sl_plan *plan) {
    const double width = (double)(mla->columns / mla->heads), rows = plan->rows;
    const double pairs = sl_plan_pairs(plan, 0) * (double)mla->heads;
    const double moved = rows * (4.0 * (double)mla->latent + 2.0 * (double)(mla->rope + mla->rotated));
    sl_load_attention(plan, SL_LOAD_FORWARD, pairs * (2 * width + (double)mla->rope));
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, moved);
    if (plan->forward_only) return;
    sl_load_attention(plan, SL_LOAD_INPUT, pairs * (5 * width + 3.0 * (double)mla->rope));
    sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, moved + 3 * rows * 2 * (double)mla->latent);
}

static int plan_mla(struct sl_module *module, struct sl_plan *plan) {
    struct mla *mla = (struct mla *)module;
    SL_TRY(check(mla, plan));
    mla->precision = plan->precision;
    SL_TRY(sl_plan_group(plan, mla->axis, &mla->group));
    const int index = mla->group < 0 ? 0 : plan->groups->group[mla->group].rank;
    SL_TRY(plan_shares(mla, index, sl_mesh_axis_size(plan->mesh, mla->axis), plan));
    if (mla->whole_latents) mla->group = -1;
    mla->leaves = mla->rope ? sl_plan_leaves(plan, mla->axis) : 0;
    SL_TRY(sl_mla_choose_latents(mla, plan));
    SL_TRY(plan_children(module, plan));
    SL_TRY(plan_forward(mla, plan));
    if (plan->load) count(mla, plan);
    if (plan->caches) SL_TRY(sl_mla_plan_caches(mla, plan));
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    mla->context.beside = true;
    mla->context.columns[0] = 2 * mla->columns;
    mla->context.columns[1] = mla->rope;
    if (mla->leaves && plan->context_axis)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%srope: the gradient of a key that all heads share has no sums over leaves along \"%s\" "
                            "(--exact) if sequences are divided over \"%s\", too",
                            plan->name, mla->axis, plan->context_axis);
    mla->context.computed = mla->by_latents;
    SL_TRY(sl_plan_context(plan, &attention, &mla->context));
    if (mla->by_latents) SL_TRY(sl_mla_plan_context(mla, plan));
    return plan->forward_only ? SL_OK : plan_backward(mla, plan);
}

/* ---- forward ---- */

/* Rotates X [rows, COLUMNS] in place by the angles of TABLE. */
static void turn(const struct sl_context *context, const struct sl_rope *table, size_t columns, bool back,
                 struct sl_out x) {
    const size_t sequence = (size_t)context->sequence;
    for (int s = 0, abreast; s < context->rows / context->sequence; s += abreast) {
        abreast = sl_abreast(context, s);
        const size_t rows = (size_t)abreast * sequence, position = (size_t)sl_first_position(context, s);
        const struct sl_out to = sl_out_from(x, (size_t)s * sequence * columns);
        context->kernels->sequence->rope(rows, columns, sequence, position, sl_places_from(context, s), table->cosine,
                                         table->sine, back, sl_out_floats(to), to);
    }
}

/* Rotates tensors KEYS and QUERIES in place, and writes them in their saved forms. */
static void rotate(const struct sl_module *module, const struct sl_context *context, bool back, enum tensor keys,
                   enum tensor queries) {
    const struct mla *mla = sl_mla_of(module);
    turn(context, mla->keys, mla->rope, back, sl_mla_out(module, context, keys));
    turn(context, mla->queries, mla->rotated, back, sl_mla_out(module, context, queries));
}

/* Child I's saved input. */
static struct sl_given input_of(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_kept_given(context, &sl_mla_of(module)->kept[sl_mla_input[i]]);
}

/* Calls child I's forward, with TENSOR as its result; a saved one is written in its form. */
static int child_forward(const struct sl_module *module, struct sl_context *context, int i, bool saved,
                         enum tensor tensor) {
    const struct sl_kept *y = &sl_mla_of(module)->kept[tensor];
    if (saved) return sl_forward_kept(module->child[i], context, input_of(module, context, i), y, NULL);
    return sl_module_forward(module->child[i], context, input_of(module, context, i),
                             SL_INTO(sl_kept_values(context, y)));
}

static int project(const struct sl_module *module, struct sl_context *context, struct sl_given x) {
    const struct mla *mla = sl_mla_of(module);
    float *latent = sl_mla_at(module, context, LATENT);
    SL_TRY(sl_forward_kept(module->child[DOWN], context, x, &mla->kept[LATENT], NULL));
    sl_mla_cut(module, context, latent);
    if (mla->by_latents)
        SL_TRY(sl_mla_expand(module, context, sl_mla_at(module, context, KV_LATENT)));
    else if (!sl_mla_absorbs(context->caches, context->sequence, context->position))
        SL_TRY(child_forward(module, context, KV_UP, true, KEYS_VALUES));
    SL_TRY(child_forward(module, context, Q_UP, true, QUERIES));
    if (!mla->rope) return SL_OK;
    SL_TRY(child_forward(module, context, K_ROPE, false, ROTATED_KEYS));
    SL_TRY(child_forward(module, context, Q_ROPE, false, ROTATED_QUERIES));
    rotate(module, context, false, ROTATED_KEYS, ROTATED_QUERIES);
    return SL_OK;
}

static int mla_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                       struct sl_result *y) {
    SL_TRY(sl_check_positions(module, context, sl_mla_of(module)->shape.positions));
    SL_TRY(project(module, context, x));
    if (context->caches) {
        SL_TRY(sl_mla_attend_caches(module, context));
        sl_mla_keep(module, context, OUTPUT);
    } else {
        SL_TRY(sl_mla_attend(module, context, sl_mla_out(module, context, OUTPUT)));
    }
    return sl_module_forward_last(module->child[OUT], context, input_of(module, context, OUT), y);
}

/* ---- backward ---- */

/* OUTPUT for attention: if only products read bf16, the floats. */
static const float *output_of(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_kept *kept = &sl_mla_of(module)->kept[OUTPUT];
    return sl_kept_if(context, kept, kept->form != SL_BESIDE);
}

/* Rotates gradients back. Each leaf has written its own gradient of the keys: they are added in tree order. */
static void rotate_leaves(const struct sl_module *module, const struct sl_context *context) {
    const struct mla *mla = sl_mla_of(module);
    const size_t count = (size_t)context->rows * mla->rope;
    float *const keys = sl_at(context, &mla->leaf_keys);
    for (int leaf = 0; leaf < mla->leaves; leaf++)
        turn(context, mla->keys, mla->rope, true, sl_out_f32(keys + (size_t)leaf * count));
    sl_tree_blocks(context->kernels, mla->leaves, count, keys);
    sl_device.copy(sl_mla_at(module, context, D_ROTATED_KEYS), keys, count * sizeof *keys);
    turn(context, mla->queries, mla->rotated, true, sl_mla_out(module, context, D_ROTATED_QUERIES));
}

/* D_O is OUTPUT's gradient. */
static int attention_backward(const struct sl_module *module, struct sl_context *context, struct sl_rows d_o) {
    const struct mla *mla = sl_mla_of(module);
    struct sl_attention shape = sl_mla_attention(mla, context->rows, context->sequence);
    shape.stored =
        sl_context_reads_floats(&mla->context) ? SL_F32 : sl_attention_stored(context, &shape, &mla->kept[QUERIES]);
    const void *keys_values = mla->by_latents ? NULL : sl_kept_operand(context, &mla->kept[KEYS_VALUES], shape.stored);
    const void *keys = mla->rope ? sl_kept_operand(context, &mla->kept[ROTATED_KEYS], shape.stored) : NULL;
    const void *turned = mla->rope ? sl_kept_operand(context, &mla->kept[ROTATED_QUERIES], shape.stored) : NULL;
    const void *queries = sl_kept_operand(context, &mla->kept[QUERIES], shape.stored);
    const struct sl_out d_keys_values = sl_mla_out(module, context, D_KEYS_VALUES);
    float *d_keys = mla->leaves > 1 ? sl_at(context, &mla->leaf_keys)
                    : mla->rope     ? sl_mla_at(module, context, D_ROTATED_KEYS)
                                    : NULL;
    float *d_queries = mla->rope ? sl_mla_at(module, context, D_ROTATED_QUERIES) : NULL;
    shape.leaves = (size_t)mla->leaves;
    shape.stored_o = context->storage;
    shape.stored_d_o = d_o.type;
    shape.places = context->batch.places;
    const struct sl_out dq = sl_mla_out(module, context, D_QUERIES);
    if (mla->by_latents) SL_TRY(sl_mla_expand(module, context, sl_recall(context, &mla->kept[KV_LATENT])));
    if (mla->context.divided) {
        SL_TRY(sl_context_backward(context, &mla->context, &shape,
                                   &(struct sl_context_call){.q = queries,
                                                             .q_rope = turned,
                                                             .own = {keys_values, keys},
                                                             .o = output_of(module, context),
                                                             .logsum = sl_mla_at(module, context, LOGSUM),
                                                             .d_o = d_o.at,
                                                             .dq = dq,
                                                             .dq_rope = d_queries,
                                                             .d_own = {sl_out_floats(d_keys_values), d_keys}}));
        if (!mla->by_latents) sl_mla_keep(module, context, D_KEYS_VALUES);
    } else {
        const void *values = (const char *)keys_values + mla->columns * sl_dtype_size(shape.stored);
        context->kernels->attention->backward(&shape, queries, turned, keys_values, values, keys,
                                              output_of(module, context), sl_mla_at(module, context, LOGSUM), d_o.at,
                                              dq, d_queries, d_keys_values, sl_out_from(d_keys_values, mla->columns),
                                              d_keys, sl_at(context, &mla->scratch));
    }
    if (mla->leaves > 1)
        rotate_leaves(module, context);
    else if (mla->rope)
        rotate(module, context, true, D_ROTATED_KEYS, D_ROTATED_QUERIES);
    return SL_OK;
}

static int mla_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                              struct sl_given dy, struct sl_result *dx) {
    const struct mla *mla = sl_mla_of(module);
    struct sl_result d_o = sl_kept_result(context, &mla->kept[D_OUTPUT]);
    d_o.made = SL_LEFT;
    SL_TRY(sl_module_backward_input(module->child[OUT], context, sl_mla_stored(module, context, OUTPUT), dy, &d_o));
    SL_TRY(attention_backward(module, context, sl_result_rows(&d_o)));
    SL_TRY(sl_mla_latent_gradient(module, context));
    return sl_mla_backward_input(module, context, DOWN, x, dx);
}

static int mla_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                               struct sl_given dy) {
    for (int i = 0; i < module->children; i++)
        SL_TRY(sl_backward_weight_groups(module->child[i], context, sl_mla_input_of(module, context, i, x),
                                         i == OUT ? dy : sl_mla_stored(module, context, sl_mla_gradient[i])));
    return SL_OK;
}

static void release(struct sl_module *module) {
    sl_rope_release(((struct mla *)module)->keys);
    sl_rope_release(((struct mla *)module)->queries);
    sl_gemm_release(&((struct mla *)module)->expansion);
    sl_gemm_release(&((struct mla *)module)->latent_gradient);
    sl_gemm_release(&((struct mla *)module)->kernel_gradient);
}

static const struct sl_module_type type = {.name = "mla",
                                           .plan = plan_mla,
                                           .forward = mla_forward,
                                           .backward_input = mla_backward_input,
                                           .backward_weight = mla_backward_weight,
                                           .stores = true,
                                           .fuses = true,
                                           .bytes = sizeof(struct mla),
                                           .release = release};

/* ---- construction ---- */

static struct sl_module *new_out(const struct sl_mla *shape, const struct sl_channels *channels) {
    const int columns = shape->dimension;
    struct sl_module *out = sl_last_dense("out", columns, columns, true, channels);
    if (shape->dropout == 0.0) return out;
    return sl_sequential("", 2, (struct sl_module *[]){out, sl_sharded_dropout(columns, shape->dropout, channels)});
}

/* By rows, each coordinate computes its rows of the latents, and all get those of all. */
static struct sl_module *new_down(const struct sl_mla *shape, const struct sl_channels *channels) {
    const struct sl_channels whole = {.mesh = channels->mesh, .axis = ""};
    struct sl_module *down = sl_sharded_dense("down", shape->dimension, 2 * shape->latent, 1, 1, &whole);
    return sl_sequential("", 2,
                         (struct sl_module *[]){sl_own_rows(down, channels), sl_all_rows(2 * shape->latent, channels)});
}

/* By rows, every coordinate computes the shared keys. */
static struct sl_module *new_k_rope(const struct sl_mla *shape, const struct sl_channels *channels) {
    const struct sl_channels whole = {.mesh = channels->mesh, .axis = ""};
    if (!sl_channels_by_rows(channels)) return sl_summed_dense("k_rope", 2 * shape->latent, shape->rope, 2, channels);
    return sl_summed_gradients(sl_sharded_dense("k_rope", 2 * shape->latent, shape->rope, 1, 1, &whole), channels);
}

static struct sl_module *new_q_rope(const struct sl_mla *shape, const struct sl_channels *channels) {
    const int in = 2 * shape->latent, out = shape->rope * shape->heads;
    if (sl_channels_by_rows(channels)) return sl_first_dense("q_rope", in, out, 1, true, channels);
    return sl_sharded_dense("q_rope", in, out, 2, 1, channels);
}

struct sl_module *sl_mla(const char *name, const struct sl_mla *shape, const struct sl_channels *channels) {
    const int columns = shape->dimension, latent = shape->latent, rope = shape->rope;
    const int share = columns / sl_mesh_axis_size(channels->mesh, channels->axis);
    const bool by_rows = sl_channels_by_rows(channels);
    struct sl_module *const child[CHILDREN] = {
        [DOWN] = by_rows ? new_down(shape, channels) : sl_sharded_dense("down", columns, 2 * latent, 1, 2, channels),
        [KV_UP] = sl_first_dense("kv_up", latent, 2 * columns, 2, true, channels),
        [Q_UP] = sl_first_dense("q_up", latent, columns, 1, true, channels),
        [OUT] = new_out(shape, channels),
        [K_ROPE] = rope ? new_k_rope(shape, channels) : NULL,
        [Q_ROPE] = rope ? new_q_rope(shape, channels) : NULL,
    };
    struct sl_module *module = sl_module_new_parent(&type, name, share, share, rope ? CHILDREN : K_ROPE, child);
    if (!module) return NULL;
    ((struct mla *)module)->shape = *shape;
    ((struct mla *)module)->axis = channels->axis;
    ((struct mla *)module)->whole_latents = by_rows;
    return module;
}
