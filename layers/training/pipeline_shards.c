/* pipeline_shards.c - kernels sharded over data, gathered as the schedule's UNSHARD and RESHARD say
 * (layers/modules/parameters/gathers.h).
 *
 * Without training, or if parameters take turns in memory, modules gather kernels for each use instead. If all kernels
 * of a coordinate would be whole at the same time, and the coordinate does not share them with peers, modules also
 * gather large kernels for each use, because these need most of the memory. A small kernel would cost a call per use
 * and save little. */
#include <stdio.h>

#include "layers/training/pipeline_internal.h"

enum { SMALL = 1 << 16 }; /* bytes of a whole kernel */

int sl_pipeline_plan_shards(struct sl_pipeline *p, const struct sl_parameters *parameters) {
    const struct sl_schedule *schedule = p->options.schedule;
    const char *axis = parameters->data_axis;
    if (!schedule->sharded || p->options.forward_only || parameters->turns) return SL_OK;
    if (!axis || sl_axis_size(p->self, axis) == 1) return SL_OK;
    p->unshards = true;
    SL_TRY(sl_gathers_plan(&p->gathers, p->self, axis, schedule->loops, sl_schedule_unsharded(schedule, p->rank),
                           parameters->wholes));
    if (!sl_reads_peers(p->self) && schedule->loops <= SL_MOST_UNSHARDED) p->gathers.most = SMALL;
    return sl_scatters_plan(&p->scatters, p->self, axis, parameters->sums_by_tree);
}

/* Adds an event to the trace. */
static void note(const struct sl_pipeline *p, const char *name, int loop, double began, double end) {
    struct sl_trace_event event = {.begin = began, .end = end, .work = SL_TRACE_GATHER, .loop = loop, .stage = -1};
    snprintf(event.name, sizeof event.name, "%s", name);
    sl_trace_add(p->step->trace, event);
}

/* Adds events of ended gathers. */
static void note_ended(struct sl_pipeline *p) {
    for (int l = 0; l < p->model->loops; l++) {
        if (p->gathers.left[l] || p->gathers.began[l] == 0) continue;
        note(p, "unshard", l, p->gathers.began[l], sl_now());
        p->gathers.began[l] = 0;
    }
}

/* Gathers the kernels that the members hold together; UNSHARD does not gather them. */
int sl_pipeline_begin_shards(struct sl_pipeline *p) {
    if (!p->unshards) return SL_OK;
    const double began = sl_now();
    SL_TRY(sl_gathers_begin(&p->gathers, p->self));
    if (p->gathers.together && p->gathers.count) note(p, "gather", 0, began, sl_now());
    return SL_OK;
}

int sl_pipeline_shard_step(struct sl_pipeline *p, const struct sl_action *action) {
    if (!p->unshards) return SL_OK;
    if (action->kind == SL_UNSHARD) return sl_gathers_start(&p->gathers, p->self, action->loop);
    SL_TRY(sl_gathers_drop(&p->gathers, p->self, action->loop));
    const double now = sl_now();
    if (!p->gathers.together && p->gathers.count) note(p, "reshard", action->loop, now, now);
    return SL_OK;
}

int sl_pipeline_advance_shards(struct sl_pipeline *p) {
    if (!p->unshards) return SL_OK;
    SL_TRY(sl_gathers_advance(&p->gathers, p->self));
    note_ended(p);
    return SL_OK;
}

int sl_pipeline_use_shards(struct sl_pipeline *p, const struct sl_action *action) {
    if (!p->unshards || !(action->kind == SL_FORWARD || sl_has_input_gradient(action->kind))) return SL_OK;
    const enum sl_work before = sl_profile_begin(p->context.profile, SL_WORK_COMMUNICATION);
    SL_TRY(sl_gathers_wait(&p->gathers, p->self, action->loop));
    sl_profile_end(p->context.profile, before);
    note_ended(p);
    return SL_OK;
}

int sl_pipeline_end_scatters(struct sl_pipeline *p) {
    if (!p->unshards) return SL_OK;
    const enum sl_work before = sl_profile_begin(p->context.profile, SL_WORK_COMMUNICATION);
    SL_TRY(sl_scatters_end(&p->scatters, p->self, p->context.kernels));
    sl_profile_end(p->context.profile, before);
    return SL_OK;
}

int sl_pipeline_end_shards(struct sl_pipeline *p) { return p->unshards ? sl_gathers_end(&p->gathers, p->self) : SL_OK; }
