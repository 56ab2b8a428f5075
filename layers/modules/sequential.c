/* sequential.c - modules that are made of modules: one after another, and beside a residual connection. */
#include <stdlib.h>
#include <string.h>

#include "layers/modules/modules.h"

/* What passes between child i and child i + 1: the activation, and the gradient on the way back. Each lies in the stash
 * where one of the two will ask for it again, and otherwise in a workspace buffer that it shares with every second
 * edge, as a child reads one edge while it writes the next. */
struct sl_edge {
    bool stashes_activation, stashes_gradient;
    int activation, gradient; /* numbers of stash tensors */
    size_t workspace;         /* offset in bytes */
};

static float *edge_tensor(const struct sl_edge *edge, const struct sl_context *context, bool stashed, int number) {
    return stashed ? sl_stash_of(context, number) : (float *)(void *)(context->workspace + edge->workspace);
}

static float *activation(const struct sl_module *module, const struct sl_context *context, int i) {
    const struct sl_edge *edge = &module->edge[i];
    return edge_tensor(edge, context, edge->stashes_activation, edge->activation);
}

static float *gradient(const struct sl_module *module, const struct sl_context *context, int i) {
    const struct sl_edge *edge = &module->edge[i];
    return edge_tensor(edge, context, edge->stashes_gradient, edge->gradient);
}

/* ---- sequential ---- */

static int plan_children(struct sl_module *module, struct sl_plan *plan) {
    const size_t begin = plan->workspace;
    size_t end = begin;
    for (int i = 0; i < module->children; i++) {
        struct sl_module *child = module->child[i];
        if (i > 0 && child->in != module->child[i - 1]->out)
            return sl_error_set(
                plan->error, SL_BAD_INPUT, "%schild %d (%s) takes %d columns, but child %d (%s) gives %d", plan->name,
                i, child->type->name, child->in, i - 1, module->child[i - 1]->type->name, module->child[i - 1]->out);
        plan->workspace = begin;
        SL_TRY(sl_module_plan(child, plan));
        if (plan->workspace > end) end = plan->workspace;
    }
    plan->workspace = end;
    return SL_OK;
}

static int plan_edges(struct sl_module *module, struct sl_plan *plan) {
    size_t columns[2] = {0, 0}, buffer[2];
    for (int i = 0; i < module->children - 1; i++) {
        struct sl_edge *edge = &module->edge[i];
        const size_t width = (size_t)module->child[i]->out;
        edge->stashes_activation = module->child[i + 1]->keeps_input;
        edge->stashes_gradient = module->child[i]->keeps_gradient;
        if (edge->stashes_activation && (edge->activation = sl_plan_stash(plan, width)) < 0) return SL_FAILED;
        if (edge->stashes_gradient && (edge->gradient = sl_plan_stash(plan, width)) < 0) return SL_FAILED;
        const bool buffered = !edge->stashes_activation || !edge->stashes_gradient;
        if (buffered && width > columns[i % 2]) columns[i % 2] = width;
    }
    for (int i = 0; i < 2; i++) buffer[i] = sl_plan_workspace(plan, (size_t)plan->rows * columns[i] * sizeof(float));
    for (int i = 0; i < module->children - 1; i++) module->edge[i].workspace = buffer[i % 2];
    return SL_OK;
}

static int plan_sequential(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(plan_children(module, plan));
    module->keeps_input = module->child[0]->keeps_input;
    module->keeps_gradient = module->child[module->children - 1]->keeps_gradient;
    return plan_edges(module, plan);
}

static int sequential_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    for (int i = 0; i < module->children; i++) {
        const struct sl_module *child = module->child[i];
        float *out = i < module->children - 1 ? activation(module, context, i) : y;
        SL_TRY(child->type->forward(child, context, x, out));
        x = out;
    }
    return SL_OK;
}

/* What child I is given in backward calls: what it keeps, else NULL. X and DY are the sequence's own. */
static const float *input_of(const struct sl_module *module, const struct sl_context *context, int i, const float *x) {
    if (!module->child[i]->keeps_input) return NULL;
    return i > 0 ? activation(module, context, i - 1) : x;
}

static const float *gradient_of(const struct sl_module *module, const struct sl_context *context, int i,
                                const float *dy) {
    if (!module->child[i]->keeps_gradient) return NULL;
    return i < module->children - 1 ? gradient(module, context, i) : dy;
}

static int sequential_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                     const float *dy, float *dx) {
    for (int i = module->children - 1; i >= 0; i--) {
        const struct sl_module *child = module->child[i];
        float *out = i > 0 ? gradient(module, context, i - 1) : dx;
        SL_TRY(child->type->backward_input(child, context, input_of(module, context, i, x), dy, out));
        dy = out;
    }
    return SL_OK;
}

static int sequential_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                      const float *dy) {
    for (int i = 0; i < module->children; i++) {
        const struct sl_module *child = module->child[i];
        if (!child->type->backward_weight) continue;
        SL_TRY(child->type->backward_weight(child, context, input_of(module, context, i, x),
                                            gradient_of(module, context, i, dy)));
    }
    return SL_OK;
}

static const struct sl_module_type sequential = {"sequential", plan_sequential, sequential_forward,
                                                 sequential_backward_input, sequential_backward_weight};

/* ---- residual ---- */

static int plan_residual(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    if (inner->in != inner->out)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sresidual: the inner module (%s) takes %d columns and gives %d, which cannot be added",
                            plan->name, inner->type->name, inner->in, inner->out);
    SL_TRY(sl_module_plan(inner, plan));
    module->keeps_input = inner->keeps_input;
    module->keeps_gradient = inner->keeps_gradient;
    return SL_OK;
}

static size_t elements(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->rows * (size_t)module->in;
}

static int residual_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_module *inner = module->child[0];
    SL_TRY(inner->type->forward(inner, context, x, y));
    context->kernels->add(elements(module, context), x, y);
    return SL_OK;
}

static int residual_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                   const float *dy, float *dx) {
    const struct sl_module *inner = module->child[0];
    SL_TRY(inner->type->backward_input(inner, context, x, dy, dx));
    if (dx) context->kernels->add(elements(module, context), dy, dx);
    return SL_OK;
}

static int residual_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                    const float *dy) {
    const struct sl_module *inner = module->child[0];
    return inner->type->backward_weight ? inner->type->backward_weight(inner, context, x, dy) : SL_OK;
}

static const struct sl_module_type residual = {"residual", plan_residual, residual_forward, residual_backward_input,
                                               residual_backward_weight};

/* ---- construction ---- */

static struct sl_module *new_parent(const struct sl_module_type *type, const char *name, int children,
                                    struct sl_module *const *child) {
    bool complete = children > 0;
    for (int i = 0; i < children; i++) complete = complete && child[i];
    struct sl_module *module = complete ? sl_module_new(type, name, child[0]->in, child[children - 1]->out) : NULL;
    if (module) {
        module->child = calloc((size_t)children, sizeof(struct sl_module *));
        module->edge = calloc((size_t)children, sizeof *module->edge);
    }
    if (!module || !module->child || !module->edge) {
        sl_module_free(module);
        for (int i = 0; i < children; i++) sl_module_free(child[i]);
        return NULL;
    }
    memcpy(module->child, child, (size_t)children * sizeof *child);
    module->children = children;
    return module;
}

struct sl_module *sl_sequential(const char *name, int children, struct sl_module *const *child) {
    return new_parent(&sequential, name, children, child);
}

struct sl_module *sl_residual(struct sl_module *inner) { return new_parent(&residual, "", 1, &inner); }
