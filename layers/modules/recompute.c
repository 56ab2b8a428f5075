/* recompute.c - keeps only x between forward and backward (Chen et al., "Training deep nets with sublinear memory
 * cost", 2016).
 *
 * The inner module has two stashes of its own. `once` has a single slot, which each forward overwrites and nobody
 * reads. `again` has slots only for the microbatches that are on their way backward; the forward that runs again before
 * each backward fills it. */
#include "layers/modules/transformer_modules.h"

struct recompute {
    struct sl_module module;
    struct sl_place unread; /* y [rows, out], which the forward run again leaves to nobody */
};

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    struct sl_stash *stash = plan->stash;
    plan->stash = plan->again;
    const int status = sl_module_plan(inner, plan);
    plan->stash = stash;
    if (status) return status;
    module->keeps_input = !plan->forward_only;
    module->keeps_gradient = inner->keeps_gradient;
    const size_t bytes = sl_plan_rows(plan) * (size_t)module->out * sizeof(float);
    if (!plan->forward_only) sl_plan_workspace(plan, bytes, &((struct recompute *)module)->unread);
    return SL_OK;
}

/* CONTEXT with the inner module's stash. */
static struct sl_context with_stash(const struct sl_context *context, const struct sl_stash *stash) {
    struct sl_context inner = *context;
    inner.stash = stash;
    return inner;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    struct sl_context inner = with_stash(context, context->once);
    return sl_module_forward(module->child[0], &inner, x, y);
}

/* What the inner module adds to the metrics was added by forward. */
static int forward_again(const struct sl_module *module, const struct sl_context *context, const float *x) {
    struct sl_context inner = with_stash(context, context->again);
    struct sl_metrics unread = {0};
    inner.metrics = &unread;
    return sl_module_forward(module->child[0], &inner, x, sl_at(context, &((const struct recompute *)module)->unread));
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    struct sl_context inner = with_stash(context, context->again);
    SL_TRY(forward_again(module, context, x));
    return sl_module_backward_input(module->child[0], &inner, x, dy, dx);
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    struct sl_context inner = with_stash(context, context->again);
    return sl_module_backward_weight(module->child[0], &inner, x, dy);
}

static const struct sl_module_type recompute = {.name = "recompute",
                                                .plan = plan,
                                                .forward = forward,
                                                .backward_input = backward_input,
                                                .backward_weight = backward_weight,
                                                .fuses = true,
                                                .bytes = sizeof(struct recompute)};

struct sl_module *sl_recompute(struct sl_module *inner) {
    return sl_module_new_parent(&recompute, "", inner ? inner->in : 0, inner ? inner->out : 0, 1, &inner);
}
