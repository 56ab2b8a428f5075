/* lora.c - a dense layer with a low-rank adapter beside it (Hu et al., "LoRA", 2021): y = dense(x) + scale (x A) B.
 *
 *     x --+-- dense ------------------------------+-- y
 *         +-- lora_a -- h, scaled -- lora_b ------+
 *
 * A coordinate has its rows of A, like the dense layer's kernel, and its columns of B, like y: h is the sum of all
 * coordinates' products, and so is the gradient of h in backward. If every coordinate has all of y, each has all of B
 * and its own summand of dy, and the gradient of B is a sum, too.
 *
 * If sums add leaves, each slice of A's rows and of B's columns has products of its own (leaf_products.h,
 * leaf_columns.h). Summands of dy are then summed before they are multiplied, so every coordinate has the same
 * gradients of h and of B. */
#include <math.h>
#include <stdio.h>

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/feedforward/leaf_columns.h"
#include "layers/modules/feedforward/leaf_products.h"
#include "layers/modules/feedforward/lora_internal.h"
#include "layers/modules/kept.h"
#include "layers/modules/sharded_channels.h"

/* ---- the two factors ---- */

struct factor {
    struct sl_affine affine; /* without a bias */
    const char *axis;
    int whole, segments; /* A's rows or B's columns on all coordinates together; segments side by side */
    int group;
    bool sums;                      /* each coordinate has all of B */
    bool by_leaves;                 /* sums over the axis add leaves */
    struct sl_leaf_products rows;   /* slices of A */
    struct sl_leaf_columns columns; /* slices of B */
    struct sl_place share;          /* if it has all of B: its summand of the gradient, to be added */
    struct sl_place all;            /* [rows, out]: with leaves, the sum of all coordinates' dy */
};

static const struct factor *factor_of(const struct sl_module *module) { return (const struct factor *)module; }

/* Sums X [rows, rank] over all coordinates, in place. */
static int sum(const struct sl_module *module, struct sl_context *context, int rank, float *x) {
    return sl_sum_over(context, factor_of(module)->group, (size_t)context->rows * (size_t)rank, x);
}

static void count_sum(const struct factor *factor, const struct sl_plan *plan, enum sl_load_part part, int rank) {
    const double each = 1.0 / (double)sl_plan_run(plan);
    sl_load_call(plan, part, SL_PSUM, factor->axis, sizeof(float) * (double)plan->rows * rank, each);
}

/* Random like a linear layer's kernel in PyTorch, with variance 1 / (3 in). */
static int plan_a(struct sl_module *module, struct sl_plan *plan) {
    struct factor *factor = (struct factor *)module;
    const size_t shape[] = {(size_t)factor->whole, (size_t)module->out};
    char spec[SL_AXIS_NAME + 16];
    snprintf(spec, sizeof spec, "%s*%d", factor->axis, factor->segments);
    SL_TRY(sl_plan_group(plan, factor->axis, &factor->group));
    SL_TRY(sl_plan_parameter_sharded(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, sl_lecun_normal(shape[0]) / sqrtf(3), 2,
                                     shape, spec));
    count_sum(factor, plan, SL_LOAD_FORWARD, module->out);
    module->y.reads = sl_copy_if(plan->precision == SL_BF16);
    SL_TRY(sl_leaf_products_plan(&factor->rows, plan, sl_plan_leaves(plan, factor->axis), module->in, factor->segments,
                                 module->out));
    return sl_affine_plan_slices(module, plan, factor->rows.count, (int)factor->rows.width, module->out,
                                 SL_EPILOGUE_NONE);
}

static int multiply_a(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                      struct sl_result *y) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    if (factor->rows.count == 1) return sl_affine_forward(module, context, x, y);
    if (context->unread) return SL_OK;
    return sl_leaf_products_forward(context, &factor->rows, products, x, sl_products_kernel(products, module, context),
                                    y->floats);
}

static int forward_a(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                     struct sl_result *y) {
    SL_TRY(multiply_a(module, context, x, y));
    return sum(module, context, module->out, y->floats);
}

static int backward_input_a(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_given dy, struct sl_result *dx) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    if (factor->rows.count == 1 || !dx) return sl_affine_backward_input(module, context, x, dy, dx);
    const size_t outputs = (size_t)context->rows * (size_t)module->out;
    return sl_leaf_products_input_gradient(context, &factor->rows, products,
                                           sl_products_operand(products, context, &products->dy, outputs, dy),
                                           sl_products_kernel(products, module, context), dx->floats);
}

static int backward_weight_a(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                             struct sl_given dy) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    if (factor->rows.count == 1) return sl_affine_backward_weight(module, context, x, dy);
    if (sl_is_frozen(module, context, SL_AFFINE_KERNEL)) return SL_OK;
    const size_t outputs = (size_t)context->rows * (size_t)context->wgrad_group * (size_t)module->out;
    return sl_leaf_products_weight_gradient(context, &factor->rows, products, x,
                                            sl_products_operand(products, context, &products->dy, outputs, dy),
                                            context->accumulate, sl_gradient(module, context, SL_AFFINE_KERNEL));
}

/* Plans the sums over coordinates if each has all of B. */
static void plan_sums(struct sl_module *module, struct sl_plan *plan) {
    struct factor *factor = (struct factor *)module;
    const size_t rows = sl_plan_rows(plan), in = (size_t)module->in, whole = (size_t)factor->whole;
    const size_t group = (size_t)plan->rows * (size_t)plan->wgrad_group;
    const double bytes = sizeof(float) * (double)(in * whole), each = 1.0 / plan->wgrad_group;
    const bool trains = sl_plan_trains(plan, SL_AFFINE_KERNEL);
    if (!factor->sums || factor->group < 0 || plan->forward_only) return;
    if (factor->by_leaves) {
        const double dy = sizeof(float) * (double)plan->rows * (double)whole;
        sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM, factor->axis, dy, 1.0 / (double)sl_plan_run(plan));
        if (trains) sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, factor->axis, dy, each);
        sl_plan_workspace(plan, (trains && group > rows ? group : rows) * whole * sizeof(float), &factor->all);
    } else if (trains) {
        sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, factor->axis, bytes * each, each);
        sl_plan_workspace(plan, in * whole * sizeof(float), &factor->share);
    }
}

static int plan_b(struct sl_module *module, struct sl_plan *plan) {
    struct factor *factor = (struct factor *)module;
    const size_t shape[] = {(size_t)module->in, (size_t)factor->whole};
    char spec[SL_AXIS_NAME + 16];
    snprintf(spec, sizeof spec, "-,%s*%d", factor->axis, factor->segments);
    SL_TRY(sl_plan_group(plan, factor->axis, &factor->group));
    SL_TRY(sl_plan_parameter_sharded(plan, "kernel", SL_INIT_ZEROS, 0.0f, 2, shape, factor->sums ? "" : spec));
    factor->by_leaves = sl_plan_leaves(plan, factor->axis) > 0;
    if (!plan->forward_only && !(factor->sums && factor->by_leaves)) count_sum(factor, plan, SL_LOAD_INPUT, module->in);
    plan_sums(module, plan);
    module->y.reads = sl_copy_if(plan->precision == SL_BF16);
    SL_TRY(sl_leaf_columns_plan(&factor->columns, plan, factor->sums ? 0 : sl_plan_leaves(plan, factor->axis),
                                module->in, module->out, factor->segments));
    return sl_affine_plan_slices(module, plan, factor->columns.count, module->in, (int)factor->columns.width,
                                 SL_EPILOGUE_NONE);
}

static int forward_b(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                     struct sl_result *y) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    if (factor->columns.count == 1) return sl_affine_forward(module, context, x, y);
    if (context->unread) return SL_OK;
    const size_t inputs = (size_t)context->rows * (size_t)module->in;
    return sl_leaf_columns_forward(context, &factor->columns, products,
                                   sl_products_operand(products, context, &products->x, inputs, x),
                                   sl_products_kernel(products, module, context), y->floats);
}

/* Makes *DY the sum of all coordinates' DY [rows, out]. */
static int sum_gradients(const struct sl_module *module, struct sl_context *context, size_t rows, struct sl_given *dy) {
    const struct sl_group *peers = sl_group_of(context, factor_of(module)->group);
    const float *own = dy->floats;
    if (!peers) return SL_OK;
    float *sum = sl_at(context, &factor_of(module)->all);
    *dy = sl_given_f32(sum);
    return sl_communicate(context, sl_describe_psum_tree(peers, SL_F32, own, sum, rows * (size_t)module->out));
}

static int backward_input_b(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_given dy, struct sl_result *dx) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    if (!dx) return SL_OK;
    if (factor->sums && factor->by_leaves) {
        SL_TRY(sum_gradients(module, context, (size_t)context->rows, &dy));
        return sl_affine_backward_input(module, context, x, dy, dx);
    }
    if (factor->columns.count == 1)
        SL_TRY(sl_affine_backward_input(module, context, x, dy, dx));
    else
        SL_TRY(sl_leaf_columns_input_gradient(context, &factor->columns, products, dy,
                                              sl_products_kernel(products, module, context), dx->floats));
    return sum(module, context, module->in, dx->floats);
}

/* Computes the gradients of B's slices, or of all of B. */
static int backward_leaves(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    if (sl_is_frozen(module, context, SL_AFFINE_KERNEL)) return SL_OK;
    if (factor->sums) {
        SL_TRY(sum_gradients(module, context, rows, &dy));
        return sl_affine_backward_weight(module, context, x, dy);
    }
    const void *a = sl_products_operand(products, context, &products->x, rows * (size_t)module->in, x);
    return sl_leaf_columns_weight_gradient(context, &factor->columns, products, a, dy,
                                           sl_gradient(module, context, SL_AFFINE_KERNEL));
}

static int backward_weight_b(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                             struct sl_given dy) {
    const struct factor *factor = factor_of(module);
    const struct sl_products *products = &factor->affine.products;
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    const size_t in = (size_t)module->in, out = (size_t)module->out;
    float *gradient = sl_gradient(module, context, SL_AFFINE_KERNEL);
    if (factor->columns.count > 1 || (factor->sums && factor->by_leaves))
        return backward_leaves(module, context, x, dy);
    if (!factor->sums || factor->group < 0) return sl_affine_backward_weight(module, context, x, dy);
    float *share = context->accumulate ? sl_at(context, &factor->share) : gradient;
    const void *a = sl_products_operand(products, context, &products->x, rows * in, x);
    const void *b = sl_products_operand(products, context, &products->dy, rows * out, dy);
    SL_TRY(sl_products_weight_gradient(context, products, a, b, false, share, NULL));
    SL_TRY(sl_sum_over(context, factor->group, in * out, share));
    if (context->accumulate) context->kernels->add(in * out, share, gradient);
    return SL_OK;
}

static const struct sl_module_type a_type = {.name = "lora_a",
                                             .plan = plan_a,
                                             .forward = forward_a,
                                             .backward_input = backward_input_a,
                                             .backward_weight = backward_weight_a,
                                             .stores = true,
                                             .fuses = true,
                                             .bytes = sizeof(struct factor),
                                             .release = sl_affine_release};

static const struct sl_module_type b_type = {.name = "lora_b",
                                             .plan = plan_b,
                                             .forward = forward_b,
                                             .backward_input = backward_input_b,
                                             .backward_weight = backward_weight_b,
                                             .stores = true,
                                             .fuses = true,
                                             .bytes = sizeof(struct factor),
                                             .release = sl_affine_release};

static struct sl_module *new_factor(const struct sl_module_type *type, int in, int out, int whole, int segments,
                                    const char *axis) {
    struct sl_module *module = sl_module_new(type, type->name, in, out);
    struct factor *factor = (struct factor *)module;
    if (!module) return NULL;
    factor->axis = axis;
    factor->whole = whole;
    factor->segments = segments;
    return module;
}

/* ---- beside a dense layer ---- */

enum { DENSE, A, B, CHILDREN };

struct lora {
    struct sl_module module;
    float scale;
    bool adapted;            /* the name patterns of adapters match this one */
    struct sl_kept h, d_h;   /* [rows, rank]: A's y, scaled; its gradient */
    struct sl_place part;    /* [rows, in or out]: the adapter's part of y or of dx */
    struct sl_place factors; /* [rows]: the scale */
};

static const struct lora *own(const struct sl_module *module) { return (const struct lora *)module; }

static int rank_of(const struct sl_module *module) { return module->child[A]->out; }

/* ---- planning ---- */

static bool is_adapted(const struct sl_plan *plan) {
    char name[sizeof plan->name + 32];
    snprintf(name, sizeof name, "%slora_a.kernel", plan->name);
    return !plan->parameters->adapters || sl_patterns_match(plan->parameters->adapters, name);
}

static int plan_factors(struct sl_module *module, struct sl_plan *plan, size_t begin) {
    const bool has_dx = plan->has_dx;
    SL_TRY(sl_plan_child(plan, module->child[A], begin));
    plan->has_dx = true; /* dx of B is the gradient of h */
    const int status = sl_plan_child(plan, module->child[B], begin);
    plan->has_dx = has_dx;
    return status;
}

static void count(const struct sl_module *module, const struct sl_plan *plan) {
    const double rows = plan->rows, rank = rank_of(module);
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, rows * (3.0 * module->out + 2 * rank));
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, rows * (3.0 * module->in + 2 * rank));
}

static int plan_arrays(struct sl_module *module, struct sl_plan *plan) {
    struct lora *lora = (struct lora *)module;
    const struct sl_module *a = module->child[A], *b = module->child[B];
    const size_t rows = sl_plan_rows(plan), rank = (size_t)rank_of(module), count = (size_t)plan->rows * rank;
    const size_t in = plan->forward_only ? 0 : (size_t)module->in, out = (size_t)module->out;
    sl_plan_workspace(plan, rows * (in > out ? in : out) * sizeof(float), &lora->part);
    sl_plan_workspace(plan, rows * sizeof(float), &lora->factors);
    SL_TRY(sl_plan_kept(plan, count, b->x.lasts, &lora->h));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_plan_kept(plan, count, a->y.lasts, &lora->d_h));
    if (sl_reads_stored_gradient(plan, a)) sl_plan_kept_room(plan, &lora->d_h);
    return SL_OK;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct lora *lora = (struct lora *)module;
    const struct sl_module *dense = module->child[DENSE];
    const size_t begin = plan->workspace;
    lora->adapted = is_adapted(plan);
    SL_TRY(sl_plan_child(plan, module->child[DENSE], begin));
    module->x.lasts = dense->x.lasts;
    module->y.lasts = dense->y.lasts;
    module->x.reads = sl_reads_beside(dense->x.reads);
    module->y.reads = sl_reads_beside(dense->y.reads); /* B reads the same */
    module->x.writes = module->y.writes = SL_WRITES_ASKED;
    if (!lora->adapted) return SL_OK;
    SL_TRY(plan_factors(module, plan, begin));
    module->x.lasts = sl_longer(dense->x.lasts, module->child[A]->x.lasts);
    module->y.lasts = sl_longer(dense->y.lasts, module->child[B]->y.lasts);
    count(module, plan);
    return plan_arrays(module, plan);
}

/* ---- forward and backward ---- */

static void scale(const struct sl_module *module, struct sl_context *context, float *h) {
    const size_t rows = (size_t)context->rows;
    float *factors = sl_at(context, &own(module)->factors);
    context->kernels->fill(rows, own(module)->scale, factors);
    context->kernels->sequence->scale_rows(rows, (size_t)rank_of(module), factors, h);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct lora *lora = own(module);
    float *h = sl_kept_values(context, &lora->h), *part = sl_at(context, &lora->part);
    if (!lora->adapted) return sl_module_forward_last(module->child[DENSE], context, x, y);
    SL_TRY(sl_module_forward_last(module->child[DENSE], context, x, SL_INTO(y->floats))); /* a summand */
    SL_TRY(sl_module_forward(module->child[A], context, x, SL_INTO(h)));
    scale(module, context, h);
    sl_keep(context, &lora->h);
    if (context->unread) return SL_OK;
    SL_TRY(sl_module_forward(module->child[B], context, sl_kept_given(context, &lora->h), SL_INTO(part)));
    sl_add_result(context, (size_t)context->rows * (size_t)module->out, part, y);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct lora *lora = own(module);
    float *d_h = sl_kept_values(context, &lora->d_h), *part = sl_at(context, &lora->part);
    if (!lora->adapted) return sl_module_backward_input(module->child[DENSE], context, x, dy, dx);
    SL_TRY(sl_module_backward_input(module->child[DENSE], context, x, dy, dx ? SL_INTO(dx->floats) : NULL));
    SL_TRY(sl_module_backward_input(module->child[B], context, sl_kept_saved(context, &lora->h), dy, SL_INTO(d_h)));
    scale(module, context, d_h);
    sl_keep(context, &lora->d_h);
    SL_TRY(sl_module_backward_input(module->child[A], context, x, sl_kept_given(context, &lora->d_h),
                                    dx ? SL_INTO(part) : NULL));
    if (dx) sl_add_result(context, sl_module_elements(module, context), part, dx);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    const struct lora *lora = own(module);
    SL_TRY(sl_module_backward_weight(module->child[DENSE], context, x, dy));
    if (!lora->adapted) return SL_OK;
    SL_TRY(sl_backward_weight_groups(module->child[A], context, x, sl_kept_saved(context, &lora->d_h)));
    return sl_backward_weight_groups(module->child[B], context, sl_kept_saved(context, &lora->h), dy);
}

static const struct sl_module_type lora_type = {.name = "lora",
                                                .plan = plan,
                                                .forward = forward,
                                                .backward_input = backward_input,
                                                .backward_weight = backward_weight,
                                                .stores = true,
                                                .fuses = true,
                                                .bytes = sizeof(struct lora)};

/* ---- construction ---- */

const char sl_lora_parameters[] = "lora_?.kernel";

float sl_lora_scale(int rank, double alpha) { return alpha > 0 ? (float)(alpha / rank) : 2.0f; }

struct sl_module *sl_lora_beside(const char *name, struct sl_module *dense, const struct sl_lora_shape *shape,
                                 const struct sl_channels *channels) {
    const int rank = channels->lora->rank, in = dense ? dense->in : 0, out = dense ? dense->out : 0;
    struct sl_module *const child[CHILDREN] = {
        [DENSE] = dense,
        [A] = new_factor(&a_type, in, rank, shape->in, shape->segments_in, channels->axis),
        [B] = new_factor(&b_type, rank, out, shape->out, shape->segments_out, channels->axis),
    };
    if (child[B]) ((struct factor *)child[B])->sums = shape->sums;
    struct sl_module *module = sl_module_new_parent(&lora_type, name, in, out, CHILDREN, child);
    if (module) ((struct lora *)module)->scale = sl_lora_scale(rank, channels->lora->alpha);
    return module;
}
