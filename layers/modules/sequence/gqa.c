/* gqa.c - attention with groups of query heads that share heads of keys and values (Ainslie et al., "GQA", 2023); heads
 * are sharded over an axis.
 *
 *     x --+-- q [- norm] - rotated --+
 *         +-- k [- norm] - rotated --+-- attention -- o -- out -- y
 *         +-- v ---------------------+
 *
 * All products are sharded. The product of q, and those of k and v if the axis's size divides their heads, scatter
 * their sums over columns, so each coordinate gets whole heads. If it does not divide the heads of keys, every
 * coordinate has all of them and reads some; a coordinate's gradient of the others is zero, and the products' backward
 * sums all coordinates' gradients. */
#include "layers/modules/edges.h"
#include "layers/modules/share.h"
#include "layers/modules/sequence/cached.h"
#include "layers/modules/sequence/context.h"
#include "layers/modules/sequence/rope.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

enum { Q, K, V, OUT, CHILDREN, READERS = OUT };

/* Arrays between the children: [rows, columns], except LOGSUM [heads, rows]. */
enum tensor {
    QUERIES, /* the number of a child: its y */
    KEYS,
    VALUES,
    OUTPUT, /* output of attention */
    LOGSUM,
    D_QUERIES, /* D_QUERIES + a child's number: the gradient of its y */
    D_KEYS,
    D_VALUES,
    D_OUTPUT, /* in the memory of PART */
    PART,     /* one child's summand of dx */
    TENSORS
};

struct gqa {
    struct sl_module module;
    struct sl_gqa shape;
    const char *axis; /* axis of the heads */
    int group;
    /* Sizes on this coordinate: */
    size_t heads, columns;         /* for q */
    size_t key_heads, key_columns; /* for each of k and v: its own heads, or all */
    size_t lead;                   /* earlier query heads with the same key heads or earlier ones */
    size_t cached, cached_columns; /* for each of k and v: first column read by its heads, and number of columns */
    enum sl_dtype precision;       /* type of products' operands */
    bool reads_stored;             /* forward's attention reads only the bf16 copies */
    struct sl_rope *rope;          /* NULL without rotary positions */
    struct sl_kept kept[TENSORS];
    struct sl_place scratch; /* scratch memory of attention's backward */
    struct sl_cached caches;
    struct sl_context_keys context; /* of divided sequences */
};

static const struct gqa *own(const struct sl_module *module) { return (const struct gqa *)module; }

static float *at(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_values(context, &own(module)->kept[tensor]);
}

/* Returns whether all coordinates have the same heads of keys. */
static bool replicates(const struct gqa *gqa) {
    return gqa->group >= 0 && gqa->key_heads == (size_t)gqa->shape.key_heads;
}

static bool is_divided(const struct gqa *gqa) { return gqa->context.divided; }

/* Returns whether attention's gradients of keys are not final: other columns, or other coordinates' sums, follow. */
static bool is_partial(const struct gqa *gqa) { return replicates(gqa) || is_divided(gqa); }

/* Returns whether attention writes the final gradient of child I's y: it is neither rotated nor partial. */
static bool settles(const struct gqa *gqa, int i) { return (i == V || !gqa->rope) && (i == Q || !is_partial(gqa)); }

static struct sl_attention attention_of(const struct gqa *gqa, int rows, int sequence) {
    return (struct sl_attention){.sequences = (size_t)(rows / sequence),
                                 .queries = (size_t)sequence,
                                 .key_rows = (size_t)sequence,
                                 .heads = gqa->heads,
                                 .width = (size_t)gqa->shape.width,
                                 .group = (size_t)(gqa->shape.heads / gqa->shape.key_heads),
                                 .lead = gqa->lead,
                                 .window = (size_t)gqa->shape.window,
                                 .products = gqa->precision,
                                 .key_stride = gqa->key_columns};
}

/* ---- planning ---- */

static int check(const struct gqa *gqa, const struct sl_plan *plan) {
    const struct sl_gqa *shape = &gqa->shape;
    const int size = sl_plan_parts(plan, gqa->axis);
    if (shape->heads < 1 || shape->key_heads < 1 || shape->heads % shape->key_heads)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sheads: %d heads of queries, %d of keys and values: there must be some of both, and "
                            "equally many queries for each key",
                            plan->name, shape->heads, shape->key_heads);
    if (shape->heads % size)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%sheads: %d heads do not divide by the %d %s along \"%s\"",
                            plan->name, shape->heads, size, sl_plan_parts_name(plan, gqa->axis), gqa->axis);
    if (sl_plan_leaves(plan, gqa->axis) && shape->key_heads % size)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sheads: %d heads of keys and values do not divide by the %d leaves along \"%s\"",
                            plan->name, shape->key_heads, size, gqa->axis);
    if (shape->width < 1 || (shape->rotates && shape->width % 2))
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%swidth: heads of %d columns cannot be rotated in pairs; there must be an even number",
                            plan->name, shape->width);
    if (shape->window < 0)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%swindow: %d tokens: there must be 1 or more, or 0 for no window", plan->name,
                            shape->window);
    return sl_plan_positions(plan, shape->positions);
}

/* Plans the shares of coordinate INDEX of SIZE. */
static int plan_shares(struct gqa *gqa, int index, int size, struct sl_plan *plan) {
    const struct sl_gqa *shape = &gqa->shape;
    const int heads = shape->heads / size, group = shape->heads / shape->key_heads, first = index * heads;
    const size_t width = (size_t)shape->width;
    const bool divides = shape->key_heads % size == 0;
    gqa->heads = (size_t)heads;
    gqa->columns = gqa->heads * width;
    gqa->key_heads = (size_t)(divides ? shape->key_heads / size : shape->key_heads);
    gqa->key_columns = gqa->key_heads * width;
    gqa->lead = divides ? 0 : (size_t)first;
    gqa->cached = divides ? 0 : (size_t)(first / group) * width;
    gqa->cached_columns = divides ? gqa->key_columns : (size_t)((first + heads - 1) / group + 1) * width - gqa->cached;
    if (!shape->rotates) return SL_OK;
    const struct sl_rope rope = {
        .positions = shape->positions, .columns = shape->width, .pairs = shape->width / 2, .angles = shape->rotary};
    return sl_rope_share(&plan->ropes, &rope, plan->sizes_only, plan->held, &gqa->rope, plan->error);
}

static int plan_children(struct sl_module *module, struct sl_plan *plan) {
    const size_t begin = plan->workspace;
    for (int i = 0; i < CHILDREN; i++) SL_TRY(sl_plan_child(plan, module->child[i], begin));
    sl_readers_plan(module, READERS);
    module->y = module->child[OUT]->y;
    return SL_OK;
}

static int plan_tensor(struct sl_plan *plan, size_t columns, enum sl_lifetime lifetime, struct sl_kept *kept) {
    return sl_plan_kept(plan, (size_t)plan->rows * columns, lifetime, kept);
}

/* Leaves bf16 alone in arrays whose bf16 attention and products read, except arrays read by rotations. */
static void plan_alone(struct gqa *gqa, const struct sl_plan *plan) {
    struct sl_kept *kept = gqa->kept;
    const struct sl_attention attention = attention_of(gqa, (int)sl_plan_rows(plan), plan->sequence);
    const bool alone = sl_attention_alone(plan, &attention);
    gqa->reads_stored = alone && kept[QUERIES].stores;
    if (gqa->reads_stored) kept[VALUES].form = SL_ALONE;
    if (gqa->reads_stored && !gqa->rope) kept[QUERIES].form = kept[KEYS].form = SL_ALONE;
    if (alone && kept[OUTPUT].form != SL_BESIDE) /* whose floats I reads */
        sl_plan_reader(&kept[OUTPUT], &gqa->module.child[OUT]->x);
}

static int plan_forward(struct gqa *gqa, struct sl_plan *plan) {
    struct sl_kept *kept = gqa->kept;
    const struct sl_attention attention = attention_of(gqa, (int)sl_plan_rows(plan), plan->sequence);
    const size_t rows = (size_t)plan->rows;
    SL_TRY(sl_plan_attended(plan, &attention, rows * gqa->columns, &kept[QUERIES]));
    SL_TRY(sl_plan_attended(plan, &attention, rows * gqa->key_columns, &kept[KEYS]));
    SL_TRY(sl_plan_attended(plan, &attention, rows * gqa->key_columns, &kept[VALUES]));
    SL_TRY(sl_plan_kept_both(plan, gqa->module.child[OUT], rows * gqa->columns, &kept[OUTPUT]));
    if (sl_reads_stored(plan, gqa->module.child[OUT])) sl_plan_kept_room(plan, &kept[OUTPUT]);
    plan_alone(gqa, plan);
    return sl_plan_array(plan, rows * gqa->heads, SL_UNTIL_INPUT, &kept[LOGSUM].values);
}

/* The form in which attention, rotation or sl_keep leaves an operand, the gradient of child I's y. */
static enum sl_form gradient_form(const struct gqa *gqa, const struct sl_plan *plan, int i) {
    const struct sl_attention attention = attention_of(gqa, (int)sl_plan_rows(plan), plan->sequence);
    if (settles(gqa, i)) return sl_attention_alone(plan, &attention) ? SL_ALONE : SL_ROUNDED;
    return gqa->rope && i != V ? SL_ROUNDED : SL_BESIDE;
}

static int plan_backward(struct gqa *gqa, struct sl_plan *plan) {
    const struct sl_module *module = &gqa->module;
    const struct sl_attention attention = attention_of(gqa, (int)sl_plan_rows(plan), plan->sequence);
    for (int i = Q; i < OUT; i++) {
        const size_t columns = i == Q ? gqa->columns : gqa->key_columns;
        SL_TRY(sl_plan_kept_gradient(plan, module->child[i], (size_t)plan->rows * columns, gradient_form(gqa, plan, i),
                                     &gqa->kept[D_QUERIES + i]));
    }
    const size_t in = (size_t)module->in;
    SL_TRY(plan_tensor(plan, in > gqa->columns ? in : gqa->columns, SL_UNTIL_RETURN, &gqa->kept[PART]));
    sl_plan_output_gradient(plan, (size_t)plan->rows * gqa->columns, &gqa->kept[PART].values, gqa->reads_stored,
                            &gqa->kept[D_OUTPUT]);
    sl_plan_workspace(plan, sl_kernels_select()->attention->scratch(&attention), &gqa->scratch);
    return SL_OK;
}

static int plan_caches(struct gqa *gqa, struct sl_plan *plan) {
    const struct sl_attention attention = attention_of(gqa, (int)sl_plan_rows(plan), plan->sequence);
    SL_TRY(sl_plan_cache(plan, gqa->cached_columns, &gqa->caches.k));
    SL_TRY(sl_plan_cache(plan, gqa->cached_columns, &gqa->caches.v));
    return sl_plan_cached(plan, &attention, &gqa->caches);
}

/* Backward computes five products, forward two. */
static void count(const struct gqa *gqa, const struct sl_plan *plan) {
    const double rows = plan->rows, width = gqa->shape.width;
    const double pairs = sl_plan_pairs(plan, gqa->shape.window) * (double)gqa->heads;
    const double rotated = gqa->rope ? 2 * rows * (double)(gqa->columns + gqa->key_columns) : 0;
    sl_load_attention(plan, SL_LOAD_FORWARD, pairs * 2 * width);
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, rotated);
    if (plan->forward_only) return;
    sl_load_attention(plan, SL_LOAD_INPUT, pairs * 5 * width);
    sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, rotated + 2 * 3 * rows * gqa->module.in);
}

static int plan_gqa(struct sl_module *module, struct sl_plan *plan) {
    struct gqa *gqa = (struct gqa *)module;
    SL_TRY(check(gqa, plan));
    gqa->precision = plan->precision;
    SL_TRY(sl_plan_group(plan, gqa->axis, &gqa->group));
    const int index = gqa->group < 0 ? 0 : plan->groups->group[gqa->group].rank;
    SL_TRY(plan_shares(gqa, index, sl_mesh_axis_size(plan->mesh, gqa->axis), plan));
    SL_TRY(plan_children(module, plan));
    SL_TRY(plan_forward(gqa, plan));
    if (plan->load) count(gqa, plan);
    if (plan->caches) SL_TRY(plan_caches(gqa, plan));
    const struct sl_attention attention = attention_of(gqa, (int)sl_plan_rows(plan), plan->sequence);
    gqa->context.columns[0] = gqa->context.columns[1] = gqa->key_columns;
    SL_TRY(sl_plan_context(plan, &attention, &gqa->context));
    return plan->forward_only ? SL_OK : plan_backward(gqa, plan);
}

/* ---- forward ---- */

/* TENSOR as a kernel must write it. */
static struct sl_out out(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_out(context, &own(module)->kept[tensor]);
}

/* Rotation of a call's rows, for sequences at one position. */
struct turn {
    const struct sl_published_kernels *kernels;
    const struct sl_rope *rope;
    size_t width, sequence, position;
    const int32_t *places;
    bool back;
    struct {
        size_t heads;
        struct sl_out x;
    } tensor[2];
};

/* Treats the tail of a sequence as a sequence starting there. */
static void turn_rows(const void *arg, size_t first, size_t end) {
    const struct turn *turn = arg;
    const struct sl_rope *rope = turn->rope;
    for (size_t row = first, count; row < end; row += count) {
        const size_t place = turn->places ? 0 : row % turn->sequence, left = turn->sequence - place;
        count = place && left < end - row ? left : end - row;
        for (int i = 0; i < 2; i++) {
            const size_t heads = turn->tensor[i].heads, at = row * heads * turn->width;
            turn->kernels->rotate_heads(count, heads, turn->width, turn->sequence, turn->position + place,
                                        turn->places ? turn->places + row : NULL, !rope->angles.pairs, rope->cosine,
                                        rope->sine, turn->back, sl_out_from(turn->tensor[i].x, at));
        }
    }
}

/* Rotates tensors KEYS and QUERIES in place, and writes them in their saved forms. */
static void rotate(const struct sl_module *module, const struct sl_context *context, bool back, enum tensor keys,
                   enum tensor queries) {
    const struct gqa *gqa = own(module);
    const size_t sequence = (size_t)context->sequence, width = (size_t)gqa->shape.width;
    for (int s = 0, abreast; gqa->rope && s < context->rows / context->sequence; s += abreast) {
        abreast = sl_abreast(context, s);
        const size_t key = (size_t)s * sequence * gqa->key_columns, query = (size_t)s * sequence * gqa->columns;
        const struct turn turn = {
            .kernels = context->kernels->published,
            .rope = gqa->rope,
            .width = width,
            .sequence = sequence,
            .position = (size_t)sl_first_position(context, s),
            .places = sl_places_from(context, s),
            .back = back,
            .tensor = {{gqa->key_heads, sl_out_from(out(module, context, keys), key)},
                       {gqa->heads, sl_out_from(out(module, context, queries), query)}},
        };
        sl_share(context, (size_t)abreast * sequence, gqa->columns + gqa->key_columns, turn_rows, &turn);
    }
}

/* TENSOR in the type read by forward's attention. */
static const void *attended(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_if(context, &own(module)->kept[tensor], own(module)->reads_stored);
}

static int attend(const struct sl_module *module, struct sl_context *context) {
    const struct gqa *gqa = own(module);
    struct sl_attention shape = attention_of(gqa, context->rows, context->sequence);
    shape.keys = shape.stored_q = gqa->reads_stored ? SL_BF16 : SL_F32;
    shape.places = context->batch.places;
    if (is_divided(gqa))
        return sl_context_forward(
            context, &gqa->context, &shape,
            &(struct sl_context_call){.q = at(module, context, QUERIES),
                                      .own = {at(module, context, KEYS), at(module, context, VALUES)},
                                      .to = out(module, context, OUTPUT),
                                      .logsum = at(module, context, LOGSUM)});
    sl_attend(context, &shape, attended(module, context, QUERIES), NULL, attended(module, context, KEYS),
              attended(module, context, VALUES), NULL, out(module, context, OUTPUT), at(module, context, LOGSUM));
    return SL_OK;
}

/* Adds the call's tokens to the caches, which have the columns read by this coordinate's heads. */
static int attend_cached(const struct sl_module *module, struct sl_context *context) {
    const struct gqa *gqa = own(module);
    const size_t columns = gqa->cached_columns, stride = gqa->key_columns;
    struct sl_attention shape = attention_of(gqa, context->rows, context->sequence);
    shape.lead %= shape.group;
    shape.key_stride = columns;
    sl_cache_append(context, gqa->caches.k, 0, columns, at(module, context, KEYS) + gqa->cached, stride);
    sl_cache_append(context, gqa->caches.v, 0, columns, at(module, context, VALUES) + gqa->cached, stride);
    return sl_attend_cached(context, &shape, &gqa->caches, at(module, context, QUERIES), NULL,
                            out(module, context, OUTPUT), at(module, context, LOGSUM));
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct gqa *gqa = own(module);
    SL_TRY(sl_check_positions(module, context, gqa->shape.positions));
    for (int i = Q; i < OUT; i++) {
        if (gqa->rope && i != V) /* saved after rotation */
            SL_TRY(sl_module_forward(module->child[i], context, x, SL_INTO(at(module, context, (enum tensor)i))));
        else /* sums of peers without a bias are rounded here in a pass: attention reads them many times */
            SL_TRY(sl_forward_kept(module->child[i], context, x, &gqa->kept[i], NULL));
    }
    rotate(module, context, false, KEYS, QUERIES);
    SL_TRY(context->caches ? attend_cached(module, context) : attend(module, context));
    return sl_module_forward_last(module->child[OUT], context, sl_kept_given(context, &gqa->kept[OUTPUT]), y);
}

/* ---- backward ---- */

/* OUTPUT in its saved type, for products. */
static struct sl_given output_of(const struct sl_module *module, const struct sl_context *context) {
    return sl_kept_saved(context, &own(module)->kept[OUTPUT]);
}

/* OUTPUT for attention: if only products read bf16, the floats. */
static const float *result_of(const struct sl_module *module, const struct sl_context *context) {
    return sl_kept_if(context, &own(module)->kept[OUTPUT], own(module)->kept[OUTPUT].form != SL_BESIDE);
}

/* The gradient of child I's y as attention writes it: unrounded floats if they are not final. */
static struct sl_out gradient_of(const struct sl_module *module, const struct sl_context *context, int i) {
    const struct sl_out y = out(module, context, (enum tensor)(D_QUERIES + i));
    return settles(own(module), i) ? y : sl_out_f32(sl_out_floats(y));
}

/* D_O is OUTPUT's gradient. */
static int attention_backward(const struct sl_module *module, struct sl_context *context, struct sl_rows d_o) {
    const struct gqa *gqa = own(module);
    struct sl_attention shape = attention_of(gqa, context->rows, context->sequence);
    shape.stored =
        sl_context_reads_floats(&gqa->context) ? SL_F32 : sl_attention_stored(context, &shape, &gqa->kept[QUERIES]);
    const void *queries = sl_kept_operand(context, &gqa->kept[QUERIES], shape.stored);
    const void *keys = sl_kept_operand(context, &gqa->kept[KEYS], shape.stored);
    const void *values = sl_kept_operand(context, &gqa->kept[VALUES], shape.stored);
    const struct sl_out d_keys = gradient_of(module, context, K), d_values = gradient_of(module, context, V);
    if (replicates(gqa)) { /* attention writes only some of their columns */
        const size_t count = (size_t)context->rows * gqa->key_columns;
        context->kernels->fill(count, 0.0f, sl_out_floats(d_keys));
        context->kernels->fill(count, 0.0f, sl_out_floats(d_values));
    }
    shape.stored_o = context->storage;
    shape.stored_d_o = d_o.type;
    shape.places = context->batch.places;
    const struct sl_out d_queries = gradient_of(module, context, Q);
    if (is_divided(gqa))
        SL_TRY(
            sl_context_backward(context, &gqa->context, &shape,
                                &(struct sl_context_call){.q = queries,
                                                          .own = {keys, values},
                                                          .o = result_of(module, context),
                                                          .logsum = at(module, context, LOGSUM),
                                                          .d_o = d_o.at,
                                                          .dq = d_queries,
                                                          .d_own = {sl_out_floats(d_keys), sl_out_floats(d_values)}}));
    else
        context->kernels->attention->backward(&shape, queries, NULL, keys, values, NULL, result_of(module, context),
                                              at(module, context, LOGSUM), d_o.at, d_queries, NULL, d_keys, d_values,
                                              NULL, sl_at(context, &gqa->scratch));
    rotate(module, context, true, D_KEYS, D_QUERIES);
    if (is_partial(gqa) && !gqa->rope) sl_keep(context, &gqa->kept[D_KEYS]);
    if (is_partial(gqa)) sl_keep(context, &gqa->kept[D_VALUES]);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct gqa *gqa = own(module);
    struct sl_result d_o = sl_kept_result(context, &gqa->kept[D_OUTPUT]);
    d_o.made = SL_LEFT;
    SL_TRY(sl_module_backward_input(module->child[OUT], context, output_of(module, context), dy, &d_o));
    SL_TRY(attention_backward(module, context, sl_result_rows(&d_o)));
    return sl_readers_backward_input(module, context, READERS, x, &gqa->kept[D_QUERIES], at(module, context, PART), dx);
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    for (int i = Q; i < OUT; i++)
        SL_TRY(sl_backward_weight_groups(module->child[i], context, x,
                                         sl_kept_saved(context, &own(module)->kept[D_QUERIES + i])));
    return sl_backward_weight_groups(module->child[OUT], context, output_of(module, context), dy);
}

static void release(struct sl_module *module) { sl_rope_release(((struct gqa *)module)->rope); }

static const struct sl_module_type type = {.name = "gqa",
                                           .plan = plan_gqa,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .backward_weight = backward_weight,
                                           .stores = true,
                                           .fuses = true,
                                           .bytes = sizeof(struct gqa),
                                           .release = release};

/* ---- construction ---- */

/* Constructs a product with HEADS heads: sharded over coordinates, or all heads on each. */
static struct sl_module *new_product(const char *name, const struct sl_gqa *shape, int heads, bool sharded,
                                     const struct sl_channels *channels) {
    const int in = shape->dimension, out = heads * shape->width;
    if (sharded) return sl_first_dense(name, in, out, 1, shape->biases, channels);
    return shape->biases ? sl_summed_dense(name, in, out, 1, channels) : sl_summed_product(name, in, out, channels);
}

static struct sl_module *new_heads(const char *name, const char *norm, const struct sl_gqa *shape, int heads,
                                   bool sharded, const struct sl_channels *channels) {
    const int have = sharded ? heads / sl_mesh_axis_size(channels->mesh, channels->axis) : heads;
    struct sl_module *product = new_product(name, shape, heads, sharded, channels);
    if (!shape->head_norms) return product;
    return sl_sequential(
        "", 2, (struct sl_module *[]){product, sl_head_norm(norm, have, shape->width, shape->epsilon, channels)});
}

static struct sl_module *new_out(const struct sl_gqa *shape, const struct sl_channels *channels) {
    const int in = shape->heads * shape->width, columns = shape->dimension;
    struct sl_module *out = sl_last_dense("out", in, columns, shape->out_bias, channels);
    if (shape->dropout == 0.0) return out;
    return sl_sequential("", 2, (struct sl_module *[]){out, sl_sharded_dropout(columns, shape->dropout, channels)});
}

struct sl_module *sl_gqa(const char *name, const struct sl_gqa *shape, const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis), share = shape->dimension / size;
    const int in = sl_channels_by_rows(channels) ? shape->dimension : share;
    const bool divides = shape->key_heads % size == 0;
    struct sl_module *const child[CHILDREN] = {
        [Q] = new_heads("q", "q_norm", shape, shape->heads, true, channels),
        [K] = new_heads("k", "k_norm", shape, shape->key_heads, divides, channels),
        [V] = new_product("v", shape, shape->key_heads, divides, channels),
        [OUT] = new_out(shape, channels),
    };
    struct sl_module *module = sl_module_new_parent(&type, name, in, share, CHILDREN, child);
    if (!module) return NULL;
    ((struct gqa *)module)->shape = *shape;
    ((struct gqa *)module)->axis = channels->axis;
    return sl_gathered_rows(module, channels);
}
