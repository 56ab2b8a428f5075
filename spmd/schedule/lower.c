/* lower.c - inserts communication and reduction into a table of compute actions.
 *
 * A state is taken right before the action that uses it. But where a forward reads a row of the stage-input buffer, it
 * is taken when it arrives, one iteration after it was computed, and kept in that row. Gradients travel the same steps
 * in reverse: what was taken is sent, what was sent is taken. */
#include "spmd/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

/* Order inside an iteration. */
enum phase { TAKE, COMPUTE, SEND, REDUCE };

struct placed {
    struct sl_action action;
    enum phase phase;
    int order; /* keeps the sort stable */
};

struct lowering {
    const struct sl_schedule *schedule;
    int *forward_time, *backward_time; /* [stages][microbatches] of the compute actions */
    struct placed *placed;             /* one rank's actions */
    int count;
    int *weight_gradients; /* [loops] of the rank so far */
};

static int *time_of(const struct lowering *lowering, int *times, int stage, int microbatch) {
    return &times[(size_t)stage * (size_t)lowering->schedule->microbatches + (size_t)microbatch];
}

static void place(struct lowering *lowering, struct sl_action action, enum phase phase) {
    lowering->placed[lowering->count] = (struct placed){action, phase, lowering->count};
    lowering->count++;
}

static int by_time(const void *left, const void *right) {
    const struct placed *a = left, *b = right;
    if (a->action.time != b->action.time) return a->action.time < b->action.time ? -1 : 1;
    if (a->action.paired != b->action.paired) return a->action.paired ? 1 : -1;
    if (a->phase != b->phase) return a->phase < b->phase ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static struct sl_action message(const struct sl_action *of, enum sl_action_kind kind, int peer, int time, int update) {
    struct sl_action action = *of;
    action.kind = kind;
    action.peer = peer;
    action.time = time;
    action.update = update;
    action.input = action.output = -1;
    return action;
}

static void place_forward(struct lowering *lowering, int rank, const struct sl_action *forward) {
    const struct sl_schedule *schedule = lowering->schedule;
    const int stage = sl_schedule_stage(schedule, rank, forward->loop);
    if (stage > 0) {
        const bool kept = forward->input >= 0;
        const int arrival = *time_of(lowering, lowering->forward_time, stage - 1, forward->microbatch) + 1;
        place(lowering,
              message(forward, SL_TAKE_ACTIVATION, sl_schedule_rank_of(schedule, stage - 1),
                      kept ? arrival : forward->time, forward->input),
              TAKE);
    }
    place(lowering, *forward, COMPUTE);
    if (forward->output < 0)
        place(lowering,
              message(forward, SL_SEND_ACTIVATION, sl_schedule_rank_of(schedule, stage + 1), forward->time, -1), SEND);
}

static void place_input_gradient(struct lowering *lowering, int rank, const struct sl_action *backward) {
    const struct sl_schedule *schedule = lowering->schedule;
    const int stage = sl_schedule_stage(schedule, rank, backward->loop);
    if (backward->output < 0)
        place(lowering,
              message(backward, SL_TAKE_GRADIENT, sl_schedule_rank_of(schedule, stage + 1), backward->time, -1), TAKE);
    place(lowering, *backward, COMPUTE);
    if (stage > 0) {
        const bool kept = backward->input >= 0;
        const int needed = *time_of(lowering, lowering->backward_time, stage - 1, backward->microbatch) - 1;
        place(lowering,
              message(backward, SL_SEND_GRADIENT, sl_schedule_rank_of(schedule, stage - 1),
                      kept && needed > backward->time ? needed : backward->time, backward->input),
              SEND);
    }
}

/* A REDUCE for each loop, in the iteration of its last weight gradient: the MICROBATCHES-th that comes along. */
static void place_weight_gradient(struct lowering *lowering, const struct sl_action *action) {
    lowering->weight_gradients[action->loop] += sl_schedule_run(lowering->schedule, action->kind);
    if (lowering->weight_gradients[action->loop] == lowering->schedule->microbatches)
        place(lowering, message(action, SL_REDUCE, -1, action->time, -1), REDUCE);
}

static int lower_rank(struct lowering *lowering, struct sl_rank_schedule *rank, int number) {
    lowering->placed = malloc((size_t)(3 * rank->count + lowering->schedule->loops) * sizeof *lowering->placed);
    lowering->count = 0;
    if (!lowering->placed) return SL_FAILED;
    memset(lowering->weight_gradients, 0, (size_t)lowering->schedule->loops * sizeof(int));
    for (int i = 0; i < rank->count; i++) {
        const struct sl_action *action = &rank->action[i];
        if (action->kind == SL_FORWARD)
            place_forward(lowering, number, action);
        else if (sl_has_input_gradient(action->kind))
            place_input_gradient(lowering, number, action);
        else
            place(lowering, *action, COMPUTE);
        if (sl_has_weight_gradient(action->kind)) place_weight_gradient(lowering, action);
    }
    qsort(lowering->placed, (size_t)lowering->count, sizeof *lowering->placed, by_time);
    int status = SL_OK;
    rank->count = 0;
    for (int i = 0; i < lowering->count && status == SL_OK; i++) {
        if (!sl_schedule_append(rank, &lowering->placed[i].action)) status = SL_FAILED;
    }
    free(lowering->placed);
    return status == SL_OK && lowering->schedule->sharded ? sl_schedule_insert_shards(rank) : status;
}

static void note_times(struct lowering *lowering) {
    const struct sl_schedule *schedule = lowering->schedule;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const int stage = sl_schedule_stage(schedule, r, action->loop);
            if (action->kind == SL_FORWARD)
                *time_of(lowering, lowering->forward_time, stage, action->microbatch) = action->time;
            else if (sl_has_input_gradient(action->kind))
                *time_of(lowering, lowering->backward_time, stage, action->microbatch) = action->time;
        }
    }
}

int sl_schedule_lower(struct sl_schedule *schedule, struct sl_error *error) {
    if (schedule->lowered) return SL_OK;
    const size_t cells = (size_t)schedule->ranks * (size_t)schedule->loops * (size_t)schedule->microbatches;
    struct lowering lowering = {.schedule = schedule,
                                .forward_time = calloc(cells, sizeof(int)),
                                .backward_time = calloc(cells, sizeof(int)),
                                .weight_gradients = calloc((size_t)schedule->loops, sizeof(int))};
    const bool taken = lowering.forward_time && lowering.backward_time && lowering.weight_gradients;
    int status = taken ? SL_OK : SL_FAILED;
    if (status == SL_OK) note_times(&lowering);
    for (int r = 0; r < schedule->ranks && status == SL_OK; r++) status = lower_rank(&lowering, &schedule->rank[r], r);
    free(lowering.forward_time);
    free(lowering.backward_time);
    free(lowering.weight_gradients);
    if (status) return sl_error_set(error, status, "schedule %s: no memory to lower it", schedule->name);
    schedule->lowered = true;
    return SL_OK;
}
