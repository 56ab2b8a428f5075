/* lower.c - inserts communication and reduction into a table of compute actions.
 *
 * A state is received right before its action. But if a forward reads a row of the stage-input buffer, the state is
 * received when it arrives, one iteration after it was computed, and saved in the row. Gradients are sent the same way
 * in reverse, with SEND and TAKE exchanged. */
#include "spmd/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

/* Order within an iteration. */
enum phase { TAKE, COMPUTE, SEND, REDUCE };

struct lowering {
    const struct sl_schedule *schedule;
    int *forward_time, *backward_time; /* [stages][microbatches] times of compute actions; NULL if no row is
                                          saved */
    struct sl_action *placed;          /* one rank's actions */
    int count;
    int *weight_gradients; /* [loops] weight gradients of the rank so far */
};

static int *time_of(const struct lowering *lowering, int *times, int stage, int microbatch) {
    return &times[(size_t)stage * (size_t)lowering->schedule->microbatches + (size_t)microbatch];
}

static void place(struct lowering *lowering, struct sl_action action) { lowering->placed[lowering->count++] = action; }

static void place_message(struct lowering *lowering, const struct sl_action *of, enum sl_action_kind kind, int peer,
                          int time, bool has_update) {
    place(lowering, (struct sl_action){.kind = kind,
                                       .time = time,
                                       .microbatch = of->microbatch,
                                       .loop = of->loop,
                                       .peer = (uint16_t)peer,
                                       .paired = of->paired,
                                       .has_update = has_update});
}

/* Whether ACTION of STAGE uses a row of the stage-input buffer. */
static bool is_kept(const struct sl_schedule *schedule, const struct sl_action *action, int stage) {
    return !sl_schedule_is_first(schedule, stage) && action->has_input;
}

static void place_forward(struct lowering *lowering, int rank, const struct sl_action *forward) {
    const struct sl_schedule *schedule = lowering->schedule;
    const int stage = sl_schedule_stage(schedule, rank, forward->loop), i = forward->microbatch;
    const bool kept = is_kept(schedule, forward, stage);
    if (!sl_schedule_is_first(schedule, stage))
        place_message(lowering, forward, SL_TAKE_ACTIVATION, sl_schedule_rank_of(schedule, stage - 1),
                      kept ? *time_of(lowering, lowering->forward_time, stage - 1, i) + 1 : forward->time, kept);
    place(lowering, *forward);
    if (!forward->has_output)
        place_message(lowering, forward, SL_SEND_ACTIVATION, sl_schedule_rank_of(schedule, stage + 1), forward->time,
                      false);
}

/* The time at which a gradient is sent. If its row is saved, this is the time at which it is needed, but not before it
 * is computed. */
static int gradient_time(const struct lowering *lowering, int stage, const struct sl_action *backward) {
    if (!is_kept(lowering->schedule, backward, stage)) return backward->time;
    const int needed = *time_of(lowering, lowering->backward_time, stage - 1, backward->microbatch) - 1;
    return needed > backward->time ? needed : backward->time;
}

static void place_input_gradient(struct lowering *lowering, int rank, const struct sl_action *backward) {
    const struct sl_schedule *schedule = lowering->schedule;
    const int stage = sl_schedule_stage(schedule, rank, backward->loop);
    if (!backward->has_output)
        place_message(lowering, backward, SL_TAKE_GRADIENT, sl_schedule_rank_of(schedule, stage + 1), backward->time,
                      false);
    place(lowering, *backward);
    if (!sl_schedule_is_first(schedule, stage))
        place_message(lowering, backward, SL_SEND_GRADIENT, sl_schedule_rank_of(schedule, stage - 1),
                      gradient_time(lowering, stage, backward), is_kept(schedule, backward, stage));
}

/* Places a loop's REDUCE in the iteration of its last weight gradient: as many as the loop has microbatches have then
 * run. */
static void place_weight_gradient(struct lowering *lowering, int rank, const struct sl_action *action) {
    const struct sl_schedule *schedule = lowering->schedule;
    const int stage = sl_schedule_stage(schedule, rank, action->loop);
    const int all = sl_schedule_end_microbatch(schedule, stage) - sl_schedule_first_microbatch(schedule, stage);
    lowering->weight_gradients[action->loop] += sl_schedule_run(schedule, action->kind);
    if (lowering->weight_gradients[action->loop] == all)
        place_message(lowering, action, SL_REDUCE, 0, action->time, false);
}

static void place_rank(struct lowering *lowering, int number) {
    const struct sl_rank_schedule *rank = &lowering->schedule->rank[number];
    lowering->count = 0;
    memset(lowering->weight_gradients, 0, (size_t)lowering->schedule->loops * sizeof(int));
    for (int i = 0; i < rank->count; i++) {
        const struct sl_action *action = &rank->action[i];
        if (action->kind == SL_FORWARD)
            place_forward(lowering, number, action);
        else if (sl_has_input_gradient(action->kind))
            place_input_gradient(lowering, number, action);
        else
            place(lowering, *action);
        if (sl_has_weight_gradient(action->kind)) place_weight_gradient(lowering, number, action);
    }
}

/* ---- order ---- */

static enum phase phase_of(enum sl_action_kind kind) {
    if (kind == SL_TAKE_ACTIVATION || kind == SL_TAKE_GRADIENT) return TAKE;
    if (kind == SL_SEND_ACTIVATION || kind == SL_SEND_GRADIENT) return SEND;
    return kind == SL_REDUCE ? REDUCE : COMPUTE;
}

static int compare(const struct sl_action *a, const struct sl_action *b) {
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->paired != b->paired) return a->paired ? 1 : -1;
    return (int)phase_of(a->kind) - (int)phase_of(b->kind);
}

struct numbered {
    struct sl_action action;
    int order; /* makes the sort stable */
};

static int by_time(const void *left, const void *right) {
    const struct numbered *a = left, *b = right;
    const int order = compare(&a->action, &b->action);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

/* Sorts by time; most ranks' actions are in order already. */
static int sort(struct sl_action *action, int count) {
    int sorted = 1;
    while (sorted < count && compare(&action[sorted - 1], &action[sorted]) <= 0) sorted++;
    if (sorted >= count) return SL_OK;
    struct numbered *list = malloc((size_t)count * sizeof *list);
    if (!list) return SL_FAILED;
    for (int i = 0; i < count; i++) list[i] = (struct numbered){action[i], i};
    qsort(list, (size_t)count, sizeof *list, by_time);
    for (int i = 0; i < count; i++) action[i] = list[i].action;
    free(list);
    return SL_OK;
}

/* ---- the whole table ---- */

/* Lowers one rank; its list gets exactly the memory it needs. */
static int lower_rank(struct lowering *lowering, struct sl_rank_schedule *rank, int number) {
    place_rank(lowering, number);
    SL_TRY(sort(lowering->placed, lowering->count));
    const size_t bytes = (size_t)lowering->count * sizeof *rank->action;
    free(rank->action);
    *rank = (struct sl_rank_schedule){0};
    if (!lowering->count) return SL_OK;
    rank->action = malloc(bytes);
    if (!rank->action) return SL_FAILED;
    memcpy(rank->action, lowering->placed, bytes);
    rank->count = rank->capacity = lowering->count;
    return lowering->schedule->sharded ? sl_schedule_insert_shards(rank) : SL_OK;
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

/* Whether any action saves a row. *MOST receives the largest number of actions of a rank. */
static bool keeps_rows(const struct sl_schedule *schedule, int *most) {
    bool keeps = false;
    for (int r = 0; r < schedule->ranks; r++) {
        const struct sl_rank_schedule *rank = &schedule->rank[r];
        if (rank->count > *most) *most = rank->count;
        for (int i = 0; i < rank->count && !keeps; i++)
            keeps = is_kept(schedule, &rank->action[i], sl_schedule_stage(schedule, r, rank->action[i].loop));
    }
    return keeps;
}

static bool take_memory(struct lowering *lowering) {
    const struct sl_schedule *schedule = lowering->schedule;
    const size_t cells = (size_t)sl_schedule_stages(schedule) * (size_t)schedule->microbatches;
    int most = 0;
    const bool keeps = keeps_rows(schedule, &most);
    if (keeps) lowering->forward_time = calloc(2 * cells, sizeof(int));
    if (keeps && !lowering->forward_time) return false;
    if (keeps) lowering->backward_time = lowering->forward_time + cells;
    lowering->placed = malloc((3 * (size_t)most + (size_t)schedule->loops) * sizeof *lowering->placed);
    lowering->weight_gradients = calloc((size_t)schedule->loops, sizeof(int));
    return lowering->placed && lowering->weight_gradients;
}

int sl_schedule_lower(struct sl_schedule *schedule, struct sl_error *error) {
    if (schedule->lowered) return SL_OK;
    SL_TRY(sl_schedule_check_actions(schedule, error));
    struct lowering lowering = {.schedule = schedule};
    int status = take_memory(&lowering) ? SL_OK : SL_FAILED;
    if (status == SL_OK && lowering.forward_time) note_times(&lowering);
    for (int r = 0; r < schedule->ranks && status == SL_OK; r++) status = lower_rank(&lowering, &schedule->rank[r], r);
    free(lowering.forward_time);
    free(lowering.placed);
    free(lowering.weight_gradients);
    if (status) return sl_error_set(error, status, "schedule %s: no memory to lower it", schedule->name);
    schedule->lowered = true;
    return SL_OK;
}
