/* pipeline_offload.c - the stash in a window (spmd/device/window.h). A unit is the saved activations of one loop for
 * microbatches used together: a run of them forward, or a group of weight gradients.
 *
 * The schedule determines the unit of every action. So a unit is offloaded after its forwards if other units come next,
 * and read back ahead of its backwards. The stash of recomputed modules is not offloaded: it lives only for a
 * backward. */
#include "layers/training/pipeline_internal.h"

enum { MOST_FRAMES = 3 }; /* one for forwards, one for backwards, one on its way */

static int unit_of(const struct sl_pipeline *p, int loop, int microbatch) {
    const int slot = microbatch % (p->turns * p->stash.slots);
    return loop * p->turns + slot / p->stash.slots;
}

/* ---- planning ---- */

static int least_multiple(int one, int other) {
    int multiple = one;
    while (multiple % other) multiple += one;
    return multiple;
}

static size_t loop_elements(const struct sl_pipeline *p, int loop) {
    const size_t end = loop + 1 < p->model->loops ? p->kept[loop + 1].begin : p->stash.elements;
    return end - p->kept[loop].begin;
}

static int plan_units(struct sl_pipeline *p) {
    for (int l = 0; l < p->model->loops; l++) {
        const size_t bytes = loop_elements(p, l) * (size_t)p->stash.slots * sizeof *p->stash.data;
        for (int i = 0; i < p->turns; i++) SL_TRY(sl_window_add(&p->window, bytes, &p->self->error));
    }
    return SL_OK;
}

static int plan_uses(struct sl_pipeline *p) {
    for (int i = 0; i < p->actions->count; i++) {
        const struct sl_action *action = &p->actions->action[i];
        const int loop = action->loop;
        if (sl_pipeline_uses_stash(p, action))
            SL_TRY(sl_window_plan_use(&p->window, unit_of(p, loop, action->microbatch), &p->self->error));
        if (sl_has_weight_gradient(action->kind)) sl_pipeline_weights_due(p, action);
        if (!sl_pipeline_runs_weights(p, action)) continue;
        for (struct weight_gradients *weights = &p->weights[loop]; sl_pipeline_group_is_due(p, weights);) {
            SL_TRY(sl_window_plan_use(&p->window, unit_of(p, loop, weights->next), &p->self->error));
            weights->next += p->options.wgrad_group;
        }
    }
    return SL_OK;
}

/* At most half of the units are in memory. If there is only one unit, nothing is offloaded. */
int sl_pipeline_plan_offload(struct sl_pipeline *p) {
    const int slots = p->stash.slots, unit = least_multiple(p->run, p->options.wgrad_group);
    if (!p->options.offload_activations || p->options.forward_only) return SL_OK;
    const size_t near = p->stash.elements * (size_t)slots * sizeof *p->stash.data;
    p->turns = (slots + unit - 1) / unit;
    p->stash.slots = unit;
    const int units = p->turns * p->model->loops, half = units / 2;
    p->frames = half < MOST_FRAMES ? half : MOST_FRAMES;
    SL_TRY(plan_units(p));
    if (p->frames == 0 || sl_window_near_bytes(&p->window, p->frames) >= near) {
        sl_window_close(&p->window);
        p->frames = 0;
        p->stash.slots = slots;
        return SL_OK;
    }
    return plan_uses(p);
}

int sl_pipeline_open_offload(struct sl_pipeline *p) {
    SL_TRY(sl_window_open(&p->window, p->frames, p->options.offload_directory, &p->self->error));
    sl_budget_add(&p->self->held, SL_MEMORY_KEPT, sl_window_near_bytes(&p->window, p->frames));
    sl_budget_add(&p->self->held, SL_MEMORY_OFFLOADED, p->window.place);
    return SL_OK;
}

/* ---- steps ---- */

/* Brings a unit into memory. Outside of training nothing is saved, and the first frame serves for all units. */
int sl_pipeline_bring_stash(struct sl_pipeline *p, int loop, int microbatch) {
    void *memory = p->window.memory;
    if (p->context.phase == SL_TRAIN)
        SL_TRY(sl_window_use(&p->window, unit_of(p, loop, microbatch), true, &memory, &p->self->error));
    p->stash.data = memory;
    p->stash.begin = p->kept[loop].begin;
    return SL_OK;
}

void sl_pipeline_drop_stash(struct sl_pipeline *p, int loop, int end) {
    if (p->frames && end % p->stash.slots == 0) sl_window_drop(&p->window, unit_of(p, loop, end - 1));
}

/* ---- parameters ---- */

static bool uses_values(const struct sl_action *action) { return action->kind <= SL_WEIGHT_GRADIENT; }

/* Whether ACTION may write gradients of parameters: every backward (it may compute weight gradients itself), and every
 * action after which due weight gradients run. */
static bool uses_gradients(const struct sl_pipeline *p, const struct sl_action *action) {
    return sl_has_weight_gradient(action->kind) || sl_pipeline_runs_weights(p, action);
}

/* Plans which parameters each action uses. The optimizer uses values and gradients once a loop is complete. */
int sl_pipeline_plan_turns(const struct sl_pipeline *p, struct sl_parameters *parameters) {
    for (int i = 0; i < p->actions->count; i++) {
        const struct sl_action *action = &p->actions->action[i];
        const bool reduces = action->kind == SL_REDUCE;
        if (uses_values(action) || reduces)
            SL_TRY(sl_parameters_plan_turns(parameters, action->loop, false, &p->self->error));
        if (uses_gradients(p, action))
            SL_TRY(sl_parameters_plan_turns(parameters, action->loop, true, &p->self->error));
    }
    return SL_OK;
}

static int use_parameters(const struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_parameters *parameters = p->context.parameters;
    const bool gradients = p->context.phase == SL_TRAIN && uses_gradients(p, action);
    if (!parameters->turns) return SL_OK;
    if (uses_values(action) || gradients)
        SL_TRY(sl_parameters_use_values(parameters, action->loop, false, &p->self->error));
    return gradients ? sl_parameters_use_gradients(parameters, action->loop, true, &p->self->error) : SL_OK;
}

int sl_pipeline_bring(struct sl_pipeline *p, const struct sl_action *action) {
    SL_TRY(use_parameters(p, action));
    if (sl_pipeline_uses_stash(p, action)) SL_TRY(sl_pipeline_use_stash(p, action->loop, action->microbatch));
    return sl_pipeline_use_shards(p, action);
}
