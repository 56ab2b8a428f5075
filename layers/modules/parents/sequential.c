/* sequential.c - a list of modules, called one after another. */
#include <stdlib.h>

#include "layers/modules/edges.h"
#include "layers/modules/modules.h"
#include "layers/modules/parents/rewrite.h"

struct sequential {
    struct sl_module module;
    struct sl_edge *edge; /* [children - 1] */
};

static const struct sl_edge *edges_of(const struct sl_module *module) {
    return ((const struct sequential *)module)->edge;
}

static int plan_children(struct sl_module *module, struct sl_plan *plan) {
    const size_t begin = plan->workspace;
    const bool has_dx = plan->has_dx;
    sl_rewrite_undo(module);
    for (int i = 0; i < module->children; i++) {
        struct sl_module *child = module->child[i];
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

static int plan(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(plan_children(module, plan));
    SL_TRY(sl_rewrite(module, plan));
    module->x = module->child[0]->x;
    module->y = module->child[module->children - 1]->y;
    return sl_edges_settle(module, plan, ((struct sequential *)module)->edge);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    for (int i = 0; i < module->children; i++) SL_TRY(sl_edges_forward(module, context, edges_of(module), i, x, y));
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    for (int i = module->children - 1; i >= 0; i--)
        SL_TRY(sl_edges_backward_input(module, context, edges_of(module), i, x, dy, dx));
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    for (int i = 0; i < module->children; i++)
        SL_TRY(sl_edges_backward_weight(module, context, edges_of(module), i, x, dy));
    return SL_OK;
}

static void release(struct sl_module *module) { free(((struct sequential *)module)->edge); }

static const struct sl_module_type sequential = {.name = "sequential",
                                                 .plan = plan,
                                                 .forward = forward,
                                                 .backward_input = backward_input,
                                                 .backward_weight = backward_weight,
                                                 .stores = true,
                                                 .fuses = true,
                                                 .bytes = sizeof(struct sequential),
                                                 .release = release};

bool sl_is_sequential(const struct sl_module *module) { return module->type == &sequential; }

struct sl_module *sl_sequential(const char *name, int children, struct sl_module *const *child) {
    const int in = children > 0 && child[0] ? child[0]->in : 0;
    const int out = children > 0 && child[children - 1] ? child[children - 1]->out : 0;
    struct sl_module *module = sl_module_new_parent(&sequential, name, in, out, children, child);
    if (module && !(((struct sequential *)module)->edge = calloc((size_t)children, sizeof(struct sl_edge)))) {
        sl_module_free(module);
        return NULL;
    }
    return module;
}
