/* recompute.c - saves only x between forward and backward (Chen et al., "Training deep nets with sublinear memory
 * cost", 2016).
 *
 * The inner module's stash is in two parts. The stash `once` has the arrays that only I reads and, if W can follow I,
 * the arrays that W reads. A recomputed module needs them from its second forward until its I or W returns, and then
 * the next module reuses the memory, so all recomputed modules together take the memory of the largest one. The stash
 * `again` has only arrays that W reads later; there each module has its own memory.
 *
 * The first forward writes the same tensors, but they are not read. It writes them to `once`; to `again` only if
 * `again` has memory for all microbatches in flight. */
#include "layers/modules/kept.h"
#include "layers/modules/transformer_modules.h"

struct recompute {
    struct sl_module module;
    bool weights_follow;       /* I calls W, too */
    struct sl_place whole_x;   /* if x is saved as bf16, but forward reads floats: x as floats */
    struct sl_place stored_dy; /* if the storage is bf16: bf16 dy for a W that follows */
    struct sl_place unread;    /* y [rows, out] of the second forward, if it cannot be written to dx */
};

static const struct recompute *own(const struct sl_module *module) { return (const struct recompute *)module; }

/* Plans the inner module. W follows I only if an I covers whole groups: a module around this one may divide a run. */
static int plan_inner(struct recompute *recompute, struct sl_plan *plan) {
    struct sl_stash *stash = plan->stash;
    const bool follow = plan->weights_follow;
    recompute->weights_follow = follow && sl_plan_run(plan) % (size_t)plan->wgrad_group == 0;
    plan->weights_follow = recompute->weights_follow;
    plan->stash = plan->again;
    if (plan->load) plan->load->again = !plan->forward_only;
    const int status = sl_module_plan(recompute->module.child[0], plan);
    if (plan->load) plan->load->again = false;
    plan->stash = stash;
    plan->weights_follow = follow;
    if (stash != plan->again)
        plan->again->once->used = 0; /* unless a recomputed module around this one still needs it */
    return status;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct recompute *recompute = (struct recompute *)module;
    const struct sl_module *inner = module->child[0];
    const size_t rows = sl_plan_rows(plan);
    SL_TRY(plan_inner(recompute, plan));
    sl_plan_ends(module, inner, inner);
    module->x.lasts = sl_longer(inner->x.lasts, sl_until_input_if(!plan->forward_only));
    if (recompute->weights_follow) module->y.lasts = SL_UNTIL_RETURN;
    if (plan->storage != SL_F32 && !plan->forward_only) {
        sl_plan_workspace(plan, rows * (size_t)module->in * sizeof(float), &recompute->whole_x);
        sl_plan_workspace(plan, rows * (size_t)module->out * sizeof(uint16_t), &recompute->stored_dy);
    }
    if (plan->forward_only || (plan->has_dx && module->out <= module->in)) return SL_OK;
    sl_plan_workspace(plan, rows * (size_t)module->out * sizeof(float), &recompute->unread);
    return SL_OK;
}

/* CONTEXT with STASH for the inner module. */
static struct sl_context with_stash(const struct sl_context *context, const struct sl_stash *stash) {
    struct sl_context inner = *context;
    inner.stash = stash;
    return inner;
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    struct sl_context inner = with_stash(context, context->once);
    return sl_module_forward_last(module->child[0], &inner, x, y);
}

/* X as forward's argument; if forward reads only bf16, there are no floats. The second forward thus reads the same
 * numbers as the first. */
static struct sl_given input_of(const struct sl_module *module, const struct sl_context *context, struct sl_given x) {
    if (x.floats || sl_reads_copy(&module->child[0]->x)) return x;
    x.floats = sl_widen(context, &own(module)->whole_x, sl_module_elements(module, context), x);
    x.form = SL_ROUNDED;
    return x;
}

/* Runs forward again. Its y is not read, so the last product of a layer is not computed again. The first forward has
 * added the inner module's metrics already. */
static int forward_again(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                         const struct sl_result *dx) {
    struct sl_context inner = with_stash(context, context->again);
    struct sl_metrics added = {0};
    inner.metrics = &added;
    inner.sums = NULL;
    inner.unread = true;
    float *y = dx && module->out <= module->in ? dx->floats : sl_at(context, &own(module)->unread);
    return sl_module_forward_last(module->child[0], &inner, input_of(module, context, x), SL_INTO(y));
}

/* DY in the type that W reads. */
static struct sl_given stored(const struct sl_module *module, const struct sl_context *context, struct sl_given dy) {
    const size_t n = (size_t)context->rows * (size_t)module->out;
    if (context->storage == SL_F32) return dy;
    if (!dy.halves) context->kernels->round_bf16(n, dy.floats, dy.halves = sl_at(context, &own(module)->stored_dy));
    return sl_given_bf16(dy.halves);
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    struct sl_context inner = with_stash(context, context->again);
    SL_TRY(forward_again(module, context, x, dx));
    SL_TRY(sl_module_backward_input(module->child[0], &inner, x, dy, dx));
    if (!own(module)->weights_follow) return SL_OK;
    return sl_module_backward_weight_each(module->child[0], &inner, x, stored(module, context, dy));
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    struct sl_context inner = with_stash(context, context->again);
    if (own(module)->weights_follow) return SL_OK;
    return sl_module_backward_weight(module->child[0], &inner, x, dy);
}

static const struct sl_module_type recompute = {.name = "recompute",
                                                .plan = plan,
                                                .forward = forward,
                                                .backward_input = backward_input,
                                                .backward_weight = backward_weight,
                                                .stores = true,
                                                .fuses = true,
                                                .bytes = sizeof(struct recompute)};

struct sl_module *sl_recompute(struct sl_module *inner) {
    return sl_module_new_parent(&recompute, "", inner ? inner->in : 0, inner ? inner->out : 0, 1, &inner);
}
