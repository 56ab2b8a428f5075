/* sequential.c - modules made of other modules: sequences and residual connections. */
#include <stdlib.h>

#include "layers/modules/kept.h"
#include "layers/modules/modules.h"

/* The edge between child i and child i + 1: the activation and, in backward, its gradient. If one of the two children
 * needs an array saved, it lies in the stash; if child i + 1 can write dx over x, the two arrays share one place.
 * Otherwise the array lies in one of two workspace buffers, used by every second edge: a child reads one edge while it
 * writes the next. If the storage is bf16, all floats are in these buffers during a call. Gradients that W reads at
 * once, and operands on a device, also have bf16 copies in the workspace. A child that writes an operand may write only
 * this copy.
 *
 * On a device, the products before and after a gelu may compute it. The gelu is then not called, its x and y are saved
 * only as bf16, and its dy does not exist. */
struct edge {
    struct sl_kept activation, gradient;
    bool gelu;           /* the edge leads to a gelu that products compute */
    bool whole_gradient; /* the gradient's floats are unrounded, with an operand's bf16 copy beside them */
};

struct sequential {
    struct sl_module module;
    struct edge *edge; /* [children - 1] */
};

static const struct edge *edge_of(const struct sl_module *module, int i) {
    return &((const struct sequential *)module)->edge[i];
}

static float *activation(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_kept_values(context, &edge_of(module, i)->activation);
}

static float *gradient(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_kept_values(context, &edge_of(module, i)->gradient);
}

/* ---- sequential ---- */

/* Whether child I is a gelu between two other children. */
static bool is_gelu(const struct sl_module *module, int i) {
    return i > 0 && i < module->children - 1 && sl_is_gelu(module->child[i]);
}

static int plan_children(struct sl_module *module, struct sl_plan *plan) {
    const size_t begin = plan->workspace;
    const bool has_dx = plan->has_dx;
    for (int i = 0; i < module->children; i++) {
        struct sl_module *child = module->child[i];
        child->y.gelu = is_gelu(module, i + 1) ? SL_GELU_NEXT : SL_GELU_APART;
        child->x.gelu = is_gelu(module, i - 1) ? SL_GELU_NEXT : SL_GELU_APART;
        if (i > 0 && child->in != module->child[i - 1]->out)
            return sl_error_set(
                plan->error, SL_BAD_INPUT, "%schild %d (%s) takes %d columns, but child %d (%s) gives %d", plan->name,
                i, child->type->name, child->in, i - 1, module->child[i - 1]->type->name, module->child[i - 1]->out);
        plan->has_dx = i > 0 || has_dx;
        SL_TRY(sl_plan_child(plan, child, begin));
    }
    plan->has_dx = has_dx;
    return SL_OK;
}

/* Returns whether child I + 1 may write its dx over its x. A parent may not: two of its children may read x. */
static bool shares_place(const struct sl_module *module, int i) {
    const struct sl_module *after = module->child[i + 1];
    return !after->children && after->x.lasts == SL_UNTIL_DX && sl_is_kept(&module->child[i]->y);
}

/* Returns whether the products before and after child I + 1, a gelu, compute it and save its arrays. */
static bool leads_to_gelu(const struct sl_module *module, const struct sl_plan *plan, int i) {
    const struct sl_module *before = module->child[i], *after;
    if (!is_gelu(module, i + 1) || before->y.gelu != SL_GELU_DONE) return false;
    after = module->child[i + 2];
    if (plan->forward_only) return true;
    if (after->x.gelu != SL_GELU_DONE || !sl_is_kept(&after->x)) return false;
    if (plan->storage == SL_F32) return sl_reads_operand(&after->x) && sl_reads_operand(&before->y);
    return sl_is_kept(&before->y) || sl_reads_stored_gradient(plan, before);
}

/* Plans the x of a gelu, which forward-only plans do not save. */
static int plan_gelu(struct sl_plan *plan, size_t size, struct sl_kept *x) {
    return sl_plan_operand(plan, size, !plan->forward_only, SL_UNTIL_INPUT, x);
}

/* Plans the saved arrays of edge I, of SIZE elements; its other arrays lie in a buffer. If the storage is float32,
 * saved floats lie in the stash, except for operands. */
static int plan_edge(struct sl_module *module, struct sl_plan *plan, int i, size_t size, struct edge *edge) {
    static const struct sl_place none = {0};
    struct sl_module *before = module->child[i], *after = module->child[i + 1];
    *edge = (struct edge){0};
    edge->activation.rounds = edge->gradient.rounds = plan->storage != SL_F32;
    edge->activation.count = edge->gradient.count = size;
    edge->gelu = leads_to_gelu(module, plan, i);
    const bool shares = shares_place(module, i) && !edge->gelu; /* and the gradient lasts until W */
    if (edge->gelu)
        SL_TRY(plan_gelu(plan, size, &edge->activation));
    else if (sl_reads_operand(&after->x))
        SL_TRY(sl_plan_operand(plan, size, true, SL_UNTIL_WEIGHT, &edge->activation));
    else if (sl_is_kept(&after->x))
        SL_TRY(sl_plan_kept_at(plan, &none, size, shares ? SL_UNTIL_WEIGHT : after->x.lasts, &edge->activation));
    if (sl_reads_operand(&before->y))
        SL_TRY(sl_plan_operand(plan, size, sl_is_kept(&before->y), SL_FROM_INPUT, &edge->gradient));
    else if (shares)
        edge->gradient = edge->activation;
    else if (sl_is_kept(&before->y))
        SL_TRY(sl_plan_kept_at(plan, &none, size, before->y.lasts, &edge->gradient));
    return SL_OK;
}

/* Returns whether child I reads its dy both as floats and as an operand, and child I + 1 can write both. */
static bool reads_both(const struct sl_module *module, int i) {
    return module->child[i]->y.reads == SL_READS_BOTH && module->child[i + 1]->x.writes == SL_WRITES_BOTH;
}

/* Returns whether child I itself rounds dy, unless child I + 1 writes only bf16. */
static bool may_round(const struct sl_module *module, int i) {
    const enum sl_reading reads = module->child[i]->y.reads;
    return reads == SL_READS_WHOLE || reads == SL_READS_EITHER;
}

/* Returns whether a bf16 copy of child I's dy is stored in the workspace. A child that rounds floats while it reads
 * them needs no such copy. */
static bool stores_gradient_beside(const struct sl_module *module, const struct sl_plan *plan, int i) {
    const struct sl_module *child = module->child[i];
    if (may_round(module, i) && module->child[i + 1]->x.writes < SL_WRITES_BF16) return false;
    return sl_reads_stored_gradient(plan, child) || (sl_reads_operand(&child->y) && !sl_is_kept(&child->y)) ||
           reads_both(module, i);
}

/* Returns whether a bf16 copy of child I + 1's x is stored in the workspace: in forward-only plans also the x and y of
 * a gelu that a product computes. */
static bool stores_beside(const struct sl_module *module, const struct sl_plan *plan, int i) {
    const struct sl_module *after = module->child[i + 1];
    const bool behind = i > 0 && edge_of(module, i - 1)->gelu;
    if (plan->forward_only) return edge_of(module, i)->gelu || behind || sl_reads_stored(plan, after);
    return plan->storage != SL_F32 && plan->precision == SL_BF16 && sl_reads_copy(&after->x) && !sl_is_kept(&after->x);
}

static int plan_edges(struct sl_module *module, struct sl_plan *plan) {
    struct edge *edges = ((struct sequential *)module)->edge;
    const int count = module->children - 1;
    size_t columns[2] = {0, 0}, stored[2] = {0, 0};
    struct sl_place buffer[2], room[2];
    for (int i = 0; i < count; i++) {
        const size_t width = (size_t)module->child[i]->out;
        SL_TRY(plan_edge(module, plan, i, (size_t)plan->rows * width, &edges[i]));
        const bool stashed = edges[i].activation.values.stashed && edges[i].gradient.values.stashed;
        if (!stashed && width > columns[i % 2]) columns[i % 2] = width;
        const bool beside = stores_gradient_beside(module, plan, i) || stores_beside(module, plan, i);
        if (beside && width > stored[i % 2]) stored[i % 2] = width;
    }
    for (int i = 0; i < 2; i++) {
        sl_plan_workspace(plan, sl_plan_rows(plan) * columns[i] * sizeof(float), &buffer[i]);
        sl_plan_workspace(plan, sl_plan_rows(plan) * stored[i] * sizeof(uint16_t), &room[i]);
    }
    for (int i = 0; i < count; i++) {
        if (!edges[i].activation.values.stashed) edges[i].activation.values = buffer[i % 2];
        if (!edges[i].gradient.values.stashed) edges[i].gradient.values = buffer[i % 2];
        if (stores_gradient_beside(module, plan, i)) sl_plan_kept_beside(&edges[i].gradient, &room[i % 2]);
        if (reads_both(module, i)) edges[i].gradient.operand = edges[i].whole_gradient = true;
        if (stores_beside(module, plan, i)) sl_plan_kept_beside(&edges[i].activation, &room[i % 2]);
    }
    return SL_OK;
}

static int plan_sequential(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(plan_children(module, plan));
    module->x = module->child[0]->x;
    module->y = module->child[module->children - 1]->y;
    return plan_edges(module, plan);
}

/* Calls child I's forward; X is the sequence's x. */
static int forward_of(const struct sl_module *module, struct sl_context *context, int i, const float *x, float *y) {
    const bool last = i == module->children - 1;
    if (i > 0) return sl_kept_forward(module->child[i], context, &edge_of(module, i - 1)->activation, last, y);
    return last ? sl_module_forward_last(module->child[i], context, x, y)
                : sl_module_forward(module->child[i], context, x, y);
}

/* Returns whether child I rounds in its own pass in forward: its x and y are stored as bf16. */
static bool rounds_in_forward(const struct sl_module *module, int i) {
    if (i <= 0 || i >= module->children - 1 || !module->child[i]->type->forward_stored) return false;
    return edge_of(module, i - 1)->activation.stores && edge_of(module, i)->activation.stores;
}

/* Returns whether child I rounds in its own pass in backward: its dx is stored as bf16, and only child I reads the
 * gradient of its y. */
static bool rounds_in_backward(const struct sl_module *module, int i) {
    if (i <= 0 || i >= module->children - 1 || !module->child[i]->type->backward_stored) return false;
    const struct edge *before = edge_of(module, i - 1);
    return before->activation.outlasts && before->gradient.stores && !edge_of(module, i)->gradient.stores;
}

static void forward_stored(const struct sl_module *module, struct sl_context *context, int i) {
    const struct sl_kept *x = &edge_of(module, i - 1)->activation, *y = &edge_of(module, i)->activation;
    float *values = sl_reads_copy(&module->child[i + 1]->x) ? NULL : sl_kept_values(context, y);
    module->child[i]->type->forward_stored(module->child[i], context, sl_kept_values(context, x),
                                           sl_at(context, &x->stored), values, sl_at(context, &y->stored));
}

static void backward_stored(const struct sl_module *module, struct sl_context *context, int i) {
    const struct edge *before = edge_of(module, i - 1);
    float *values = sl_reads_copy(&module->child[i - 1]->y) ? NULL : gradient(module, context, i - 1);
    module->child[i]->type->backward_stored(module->child[i], context, sl_at(context, &before->activation.stored),
                                            gradient(module, context, i), values,
                                            sl_at(context, &before->gradient.stored));
}

/* Calls child I's forward, and stores y in the edge's form, unless the next child does so. */
static int forward_to_edge(const struct sl_module *module, struct sl_context *context, int i, const float *x) {
    const struct sl_kept *y = &edge_of(module, i)->activation;
    struct sl_result result = sl_kept_result(context, y, y->operand || sl_reads_copy(&module->child[i + 1]->x));
    struct sl_result *const before = context->result;
    const bool rounds = y->operand || (y->rounds && !rounds_in_forward(module, i + 1));
    context->result = rounds ? &result : NULL;
    const int status = forward_of(module, context, i, x, activation(module, context, i));
    context->result = before;
    if (status == SL_OK && rounds && !result.done) sl_keep(context, y);
    return status;
}

/* Calls child I's forward, which also computes the gelu after it. */
static int forward_to_gelu(const struct sl_module *module, struct sl_context *context, int i, const float *x) {
    const struct sl_kept *kept = &edge_of(module, i)->activation, *y = &edge_of(module, i + 1)->activation;
    struct sl_result result = {.stored = sl_at(context, &y->stored), .unread = true};
    struct sl_result *const before = context->result;
    result.gelu = sl_at(context, &kept->stored);
    context->result = &result;
    const int status = forward_of(module, context, i, x, activation(module, context, i));
    context->result = before;
    return status;
}

static int sequential_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const int last = module->children - 1;
    struct sl_summand *const summand = sl_take_summand(context); /* for the last child */
    for (int i = 0; i < last; i++) {
        if (rounds_in_forward(module, i)) {
            forward_stored(module, context, i);
            continue;
        }
        if (edge_of(module, i)->gelu) {
            SL_TRY(forward_to_gelu(module, context, i++, x));
            continue;
        }
        SL_TRY(forward_to_edge(module, context, i, x));
    }
    context->summand = summand;
    return forward_of(module, context, last, x, y);
}

/* Child I's x, and the gradient of its y, in their saved types; X and DY are the sequence's. */
static struct sl_rows input_of(const struct sl_module *module, const struct sl_context *context, int i,
                               const float *x) {
    return i > 0 ? sl_kept_saved(context, &edge_of(module, i - 1)->activation) : sl_saved_x(context, x);
}

static struct sl_rows gradient_of(const struct sl_module *module, const struct sl_context *context, int i,
                                  const float *dy) {
    return i < module->children - 1 ? sl_kept_saved(context, &edge_of(module, i)->gradient) : sl_saved_dy(context, dy);
}

static int backward_of(const struct sl_module *module, struct sl_context *context, int i, const float *x,
                       const float *dy, float *dx) {
    const struct sl_module *child = module->child[i];
    const struct sl_rows in = input_of(module, context, i, x);
    if (i == module->children - 1) return sl_saved_backward_input(child, context, in, dy, dx);
    return sl_kept_backward_input(child, context, in, &edge_of(module, i)->gradient, dx);
}

/* Returns whether child I itself rounds the gradient of its y, because it is the only reader. */
static bool rounds_gradient(const struct sl_module *module, int i) {
    if (rounds_in_backward(module, i)) return true;
    return may_round(module, i) && !edge_of(module, i)->gradient.stores;
}

/* Calls child I's backward_input, and stores dx in the edge's form. */
static int backward_to_edge(const struct sl_module *module, struct sl_context *context, int i, const float *dy) {
    const struct sl_kept *dx = &edge_of(module, i - 1)->gradient;
    const bool whole = edge_of(module, i - 1)->whole_gradient;
    const bool unread = !whole && (dx->operand || sl_reads_copy(&module->child[i - 1]->y));
    struct sl_result result = sl_kept_result(context, dx, unread);
    struct sl_result *const before = context->result;
    const bool rounds = dx->operand || (dx->rounds && !rounds_gradient(module, i - 1));
    result.whole = whole;
    context->result = rounds ? &result : NULL;
    const int status = backward_of(module, context, i, NULL, dy, gradient(module, context, i - 1));
    context->result = before;
    if (status == SL_OK && rounds && !result.done) sl_keep(context, dx);
    return status;
}

/* Calls child I's backward_input, which also computes the gradient of the gelu before it. */
static int backward_to_gelu(const struct sl_module *module, struct sl_context *context, int i, const float *dy) {
    const struct edge *edge = edge_of(module, i - 2);
    struct sl_result result = {.stored = sl_at(context, &edge->gradient.stored), .unread = true};
    struct sl_result *const before = context->result;
    result.gelu = sl_at(context, &edge->activation.stored);
    context->result = &result;
    const int status = backward_of(module, context, i, NULL, dy, gradient(module, context, i - 2));
    context->result = before;
    return status;
}

static int sequential_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                     const float *dy, float *dx) {
    struct sl_summand *const summand = sl_take_summand(context); /* for the first child */
    for (int i = module->children - 1; i > 0; i--) {
        if (rounds_in_backward(module, i))
            backward_stored(module, context, i);
        else if (i > 1 && edge_of(module, i - 2)->gelu)
            SL_TRY(backward_to_gelu(module, context, i--, dy));
        else
            SL_TRY(backward_to_edge(module, context, i, dy));
    }
    context->summand = summand;
    return backward_of(module, context, 0, x, dy, dx);
}

static int sequential_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                      const float *dy) {
    for (int i = 0; i < module->children; i++)
        SL_TRY(sl_saved_backward_weight(module->child[i], context, input_of(module, context, i, x),
                                        gradient_of(module, context, i, dy)));
    return SL_OK;
}

static void release_sequential(struct sl_module *module) { free(((struct sequential *)module)->edge); }

static const struct sl_module_type sequential = {.name = "sequential",
                                                 .plan = plan_sequential,
                                                 .forward = sequential_forward,
                                                 .backward_input = sequential_backward_input,
                                                 .backward_weight = sequential_backward_weight,
                                                 .stores = true,
                                                 .fuses = true,
                                                 .bytes = sizeof(struct sequential),
                                                 .release = release_sequential};

bool sl_is_sequential(const struct sl_module *module) { return module->type == &sequential; }

struct sl_module *sl_sequential(const char *name, int children, struct sl_module *const *child) {
    const int in = children > 0 && child[0] ? child[0]->in : 0;
    const int out = children > 0 && child[children - 1] ? child[children - 1]->out : 0;
    struct sl_module *module = sl_module_new_parent(&sequential, name, in, out, children, child);
    if (module && !(((struct sequential *)module)->edge = calloc((size_t)children, sizeof(struct edge)))) {
        sl_module_free(module);
        return NULL;
    }
    return module;
}

/* ---- residual ---- */

/* A residual connection. On a device it passes its summand to the inner module (HANDS): the last product (forward) or
 * the first norm (backward) inside may add the summand in its own pass. */
struct residual {
    struct sl_module module;
    bool hands;
};

static int plan_residual(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    if (inner->in != inner->out)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sresidual: the inner module (%s) takes %d columns and gives %d, which cannot be added",
                            plan->name, inner->type->name, inner->in, inner->out);
    SL_TRY(sl_module_plan(inner, plan));
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 3.0 * plan->rows * module->in);
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, 3.0 * plan->rows * module->in);
    module->x.lasts = inner->x.lasts;
    module->y.lasts = inner->y.lasts;
    /* A product adds x before its bias; a separate pass adds it after the bias. With leaves, bits must not depend on
     * the number of leaves per coordinate, so separate passes add. */
    const bool hands = sl_gemm_adds(plan->gemm) && !plan->leaf_axis;
    ((struct residual *)module)->hands = hands;
    module->x.writes = module->y.writes = SL_WRITES_ASKED;
    if (hands && inner->y.adds == SL_ADDS_BF16) module->x.reads = sl_reads_beside(inner->x.reads);
    if (hands && inner->x.adds == SL_ADDS_BF16) {
        module->y.reads = sl_reads_beside(inner->y.reads);
        module->x.writes = inner->x.writes;
    }
    if (inner->y.reads >= SL_READS_BOTH) module->y.reads = SL_READS_BOTH;
    return SL_OK;
}

/* Prepares the call of the inner module, which has no result request: its result is only a part of the sum. If the
 * inner module has added the summand, it sets the summand's done. */
static void hand_over(const struct sl_module *module, struct sl_context *context, struct sl_summand *summand) {
    context->result = NULL;
    context->summand = ((const struct residual *)module)->hands ? summand : NULL;
}

/* The summand X, with its bf16 copy if the parent has stored one that is not an operand. UNREAD: only the copy
 * exists. */
static struct sl_summand summand_of(const struct sl_module *module, const struct sl_context *context, const float *x,
                                    bool unread) {
    const size_t n = sl_module_elements(module, context);
    const uint16_t *stored = context->storage != SL_F32 ? sl_rounded_rows(context, n, x) : NULL;
    return (struct sl_summand){.x = stored && unread ? NULL : x, .stored = stored, .result = context->result};
}

static int residual_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    struct sl_result *const result = context->result;
    struct sl_summand summand = summand_of(module, context, x, sl_reads_copy(&module->x));
    hand_over(module, context, &summand);
    SL_TRY(sl_module_forward_last(module->child[0], context, x, y));
    if (!context->unread && !summand.done) sl_add_result(context, result, sl_module_elements(module, context), x, y);
    return SL_OK;
}

static int residual_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                   const float *dy, float *dx) {
    struct sl_result *const result = context->result;
    struct sl_summand summand = summand_of(module, context, dy, sl_reads_copy(&module->y));
    hand_over(module, context, dx ? &summand : NULL);
    SL_TRY(sl_module_backward_input(module->child[0], context, x, dy, dx));
    if (dx && !summand.done) sl_add_result(context, result, sl_module_elements(module, context), dy, dx);
    return SL_OK;
}

static int residual_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                    const float *dy) {
    return sl_module_backward_weight(module->child[0], context, x, dy);
}

static const struct sl_module_type residual = {.name = "residual",
                                               .plan = plan_residual,
                                               .forward = residual_forward,
                                               .backward_input = residual_backward_input,
                                               .backward_weight = residual_backward_weight,
                                               .stores = true,
                                               .fuses = true,
                                               .bytes = sizeof(struct residual)};

struct sl_module *sl_residual(struct sl_module *inner) {
    return sl_module_new_parent(&residual, "", inner ? inner->in : 0, inner ? inner->out : 0, 1, &inner);
}
