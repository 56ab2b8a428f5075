/* recompute.c - keeps nothing but x between forward and backward (Chen et al., "Training deep nets with sublinear
 * memory cost", 2016).
 *
 * What the inner module keeps lies in stashes of their own: in one that is written again at each forward and read by
 * nobody, and in one that has only the microbatches that are on their way backward, which the forward run again before
 * each backward fills. */
#include <stdlib.h>

#include "layers/modules/transformer_modules.h"

enum { UNREAD }; /* workspace: y [rows, out], which the forward run again leaves to nobody */

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    struct sl_stash *stash = plan->stash;
    plan->stash = plan->again;
    const int status = sl_module_plan(inner, plan);
    plan->stash = stash;
    if (status) return status;
    module->keeps_input = !plan->forward_only;
    module->keeps_gradient = inner->keeps_gradient;
    if (!plan->forward_only)
        module->workspace[UNREAD] = sl_plan_workspace(plan, (size_t)plan->rows * (size_t)module->out * sizeof(float));
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_module *inner = module->child[0];
    const struct sl_stash *stash = context->stash;
    context->stash = context->once;
    const int status = inner->type->forward(inner, context, x, y);
    context->stash = stash;
    return status;
}

/* What the inner module adds to the metrics was added by forward. */
static int forward_again(const struct sl_module *module, struct sl_context *context, const float *x) {
    const struct sl_module *inner = module->child[0];
    struct sl_metrics *metrics = context->metrics, unread = {0};
    context->metrics = &unread;
    const int status =
        inner->type->forward(inner, context, x, (float *)(void *)(context->workspace + module->workspace[UNREAD]));
    context->metrics = metrics;
    return status;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct sl_module *inner = module->child[0];
    const struct sl_stash *stash = context->stash;
    context->stash = context->again;
    int status = forward_again(module, context, x);
    if (status == SL_OK) status = inner->type->backward_input(inner, context, inner->keeps_input ? x : NULL, dy, dx);
    context->stash = stash;
    return status;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const struct sl_module *inner = module->child[0];
    const struct sl_stash *stash = context->stash;
    if (!inner->type->backward_weight) return SL_OK;
    context->stash = context->again;
    const int status = inner->type->backward_weight(inner, context, inner->keeps_input ? x : NULL, dy);
    context->stash = stash;
    return status;
}

static const struct sl_module_type recompute = {"recompute", plan, forward, backward_input, backward_weight};

struct sl_module *sl_recompute(struct sl_module *inner) {
    struct sl_module *module = inner ? sl_module_new(&recompute, "", inner->in, inner->out) : NULL;
    if (!module || !(module->child = calloc(1, sizeof(struct sl_module *)))) {
        sl_module_free(module);
        sl_module_free(inner);
        return NULL;
    }
    module->child[0] = inner;
    module->children = 1;
    return module;
}
