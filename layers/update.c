/* update.c - a loop's gradients on their way: summed, used, values gathered. */
#include "layers/update.h"

#include <stdlib.h>

int sl_updates_open(struct sl_updates *u, const char *data_axis, int loops) {
    u->completed = calloc((size_t)loops, sizeof *u->completed);
    u->began = calloc((size_t)loops, sizeof *u->began);
    if (!u->completed || !u->began) return sl_fail(u->self, SL_FAILED, "no memory to train");
    SL_TRY(sl_group_axes(u->self, data_axis, &u->sums));
    return sl_group_axes(u->self, data_axis, &u->gathers);
}

static bool alone(const struct sl_updates *u) { return u->sums.size == 1; }
static bool gathers(const struct sl_updates *u) { return u->zero && !alone(u); }
static int room(int number) { return number % SL_UPDATES_IN_FLIGHT; }

void sl_updates_close(struct sl_updates *u) {
    const int gathering = u->used; /* of the sums that are still under way no gather has begun */
    for (; u->self && !alone(u) && u->used < u->started; u->used++) sl_wait(u->self, &u->sum[room(u->used)]);
    for (; u->self && gathers(u) && u->ended < gathering; u->ended++) sl_wait(u->self, &u->gather[room(u->ended)]);
    free(u->completed);
    free(u->began);
}

/* ---- one loop each ---- */

static int start_sum(struct sl_updates *u) {
    struct sl_loop_storage *loop = &u->parameters->loop[u->completed[u->started]];
    struct sl_request *request = &u->sum[room(u->started)];
    if (u->trace) u->began[u->started] = sl_now();
    if (!alone(u)) {
        if (u->zero)
            SL_TRY(sl_psum_scatter_start(u->self, request, &u->sums, SL_F32, loop->gradient,
                                         loop->gradient + loop->shard, 1, loop->shard_count));
        else
            SL_TRY(sl_psum_start(u->self, request, &u->sums, SL_F32, loop->gradient, loop->gradient, loop->count));
    }
    u->started++;
    return SL_OK;
}

/* The oldest sum has ended: updates the loop, or this member's share of it, and starts to gather the values. */
static int use_sum(struct sl_updates *u) {
    const int number = u->completed[u->used];
    struct sl_loop_storage *loop = &u->parameters->loop[number];
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_OPTIMIZER);
    const struct sl_trace_mark mark = sl_trace_begin(u->trace);
    sl_adamw_update(u->adamw, u->kernels, u->parameters, number, u->step, 1.0f / (float)u->sums.size);
    sl_trace_end(u->trace, mark,
                 (struct sl_trace_event){.name = "optimizer", .work = SL_TRACE_OPTIMIZER, .loop = number, .stage = -1});
    sl_profile_end(u->profile, before);
    if (gathers(u))
        SL_TRY(sl_all_gather_start(u->self, &u->gather[room(u->used)], &u->gathers, SL_F32, loop->value + loop->shard,
                                   loop->value, 1, loop->shard_count));
    u->used++;
    return SL_OK;
}

/* The oldest gather has ended. */
static void end_update(struct sl_updates *u) {
    const int number = u->completed[u->ended];
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_OPTIMIZER);
    sl_parameters_round(u->parameters, u->kernels, number);
    sl_profile_end(u->profile, before);
    if (u->trace && !alone(u))
        sl_trace_add(u->trace, (struct sl_trace_event){.name = "reduce",
                                                       .begin = u->began[u->ended],
                                                       .end = sl_now(),
                                                       .work = SL_TRACE_REDUCE,
                                                       .loop = number,
                                                       .stage = -1});
    u->ended++;
}

/* ---- all of them ---- */

static bool may_start(const struct sl_updates *u) {
    return u->started < u->completions && u->started - u->ended < SL_UPDATES_IN_FLIGHT;
}

int sl_updates_complete(struct sl_updates *u, int loop) {
    u->completed[u->completions++] = loop;
    return u->overlap && !alone(u) ? sl_updates_advance(u) : SL_OK;
}

static int advance(struct sl_updates *u) {
    bool done = true;
    while (may_start(u)) SL_TRY(start_sum(u));
    while (u->used < u->started) {
        SL_TRY(sl_test(u->self, &u->sum[room(u->used)], &done));
        if (!done) break;
        SL_TRY(use_sum(u));
    }
    while (u->ended < u->used) {
        if (gathers(u)) SL_TRY(sl_test(u->self, &u->gather[room(u->ended)], &done));
        if (gathers(u) && !done) break;
        end_update(u);
    }
    return SL_OK;
}

int sl_updates_advance(struct sl_updates *u) {
    if (u->ended == u->completions || alone(u) || !u->overlap) return SL_OK;
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_COMMUNICATION);
    SL_TRY(advance(u));
    sl_profile_end(u->profile, before);
    return SL_OK;
}

int sl_updates_finish(struct sl_updates *u) {
    while (u->ended < u->completions) {
        const int ahead = u->overlap ? SL_UPDATES_IN_FLIGHT : 1; /* without overlap one after another */
        while (may_start(u) && u->started - u->ended < ahead) SL_TRY(start_sum(u));
        while (u->used < u->started) {
            if (!alone(u)) SL_TRY(sl_wait(u->self, &u->sum[room(u->used)]));
            SL_TRY(use_sum(u));
        }
        if (gathers(u)) SL_TRY(sl_wait(u->self, &u->gather[room(u->ended)]));
        end_update(u);
    }
    u->completions = u->started = u->used = u->ended = 0;
    return SL_OK;
}
