/* clock.c - gives a table's compute actions their times: every cell in the first iteration that it can have.
 *
 * Cells, not actions: a pair begins together. What a rank waits for when no rank can move any more leads to another
 * rank, and from there to the next one: following it ends in a circle, which is the explanation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/schedule.h"

struct clock {
    const struct sl_schedule *schedule;
    int *next;                         /* [ranks] first action of the rank's next cell */
    int *forward_done, *backward_done; /* [stages][microbatches] iteration, or NEVER */
    struct sl_error *error;
};

enum { NEVER = -1 };

static size_t cell_of(const struct clock *clock, int stage, int microbatch) {
    return (size_t)stage * (size_t)clock->schedule->microbatches + (size_t)microbatch;
}

/* What ACTION needs that was not done before iteration TIME: a stage, and FORWARD or BACKWARD in *NEEDS. -1: nothing.
 */
static int missing(const struct clock *clock, int rank, const struct sl_action *action, int time,
                   enum sl_action_kind *needs) {
    const struct sl_schedule *schedule = clock->schedule;
    const int stage = sl_schedule_stage(schedule, rank, action->loop), i = action->microbatch;
    const int *forward = clock->forward_done, *backward = clock->backward_done;
    const bool last = stage == sl_schedule_stages(schedule) - 1;
    int from = NEVER, done = NEVER;
    if (action->kind == SL_FORWARD) {
        if (stage == 0) return -1;
        *needs = SL_FORWARD;
        done = forward[cell_of(clock, from = stage - 1, i)];
    } else if (action->kind == SL_WEIGHT_GRADIENT) {
        *needs = SL_BACKWARD;
        done = backward[cell_of(clock, from = stage, i)];
    } else {
        const int own = forward[cell_of(clock, stage, i)];
        *needs = last || own == NEVER || own >= time ? SL_FORWARD : SL_BACKWARD;
        from = *needs == SL_FORWARD ? stage : stage + 1;
        done = *needs == SL_FORWARD ? own : backward[cell_of(clock, from, i)];
    }
    return done == NEVER || done >= time ? from : -1;
}

static int cell_end(const struct sl_rank_schedule *rank, int begin) {
    int end = begin + 1;
    while (end < rank->count && rank->action[end].paired) end++;
    return end;
}

/* The next cell of RANK, if it can be done in iteration TIME. */
static bool advance(struct clock *clock, int rank, int time) {
    struct sl_rank_schedule *actions = &clock->schedule->rank[rank];
    const int begin = clock->next[rank];
    if (begin == actions->count) return false;
    const int end = cell_end(actions, begin);
    enum sl_action_kind needs;
    for (int i = begin; i < end; i++)
        if (missing(clock, rank, &actions->action[i], time, &needs) >= 0) return false;
    for (int i = begin; i < end; i++) actions->action[i].time = time;
    clock->next[rank] = end;
    return true;
}

/* Only after all ranks have had their turn: an iteration's results are for the next one. */
static void note_done(struct clock *clock, int rank, int begin) {
    const struct sl_rank_schedule *actions = &clock->schedule->rank[rank];
    for (int i = begin; i < clock->next[rank]; i++) {
        const struct sl_action *action = &actions->action[i];
        const size_t cell = cell_of(clock, sl_schedule_stage(clock->schedule, rank, action->loop), action->microbatch);
        if (action->kind == SL_FORWARD) clock->forward_done[cell] = action->time;
        if (sl_has_input_gradient(action->kind)) clock->backward_done[cell] = action->time;
    }
}

/* The action of RANK's next cell that cannot run, and the rank that it waits for. */
static const struct sl_action *blocked(const struct clock *clock, int rank, int *waits_for, int *stage,
                                       enum sl_action_kind *needs) {
    const struct sl_rank_schedule *actions = &clock->schedule->rank[rank];
    const int begin = clock->next[rank], end = begin < actions->count ? cell_end(actions, begin) : begin;
    for (int i = begin; i < end; i++) {
        *stage = missing(clock, rank, &actions->action[i], INT32_MAX, needs);
        if (*stage < 0) continue;
        *waits_for = sl_schedule_rank_of(clock->schedule, *stage);
        return &actions->action[i];
    }
    return NULL;
}

/* Follows who waits for whom from any rank that is stuck until a rank comes up again, or one that has nothing left to
 * do; then tells the circle, or the last step. */
static int explain(struct clock *clock) {
    const struct sl_schedule *schedule = clock->schedule;
    int rank = 0, stage = 0, waits_for = 0;
    enum sl_action_kind needs;
    while (!blocked(clock, rank, &waits_for, &stage, &needs)) rank++;
    for (int i = 0; i < schedule->ranks; i++) { /* now inside the circle, if there is one */
        blocked(clock, rank, &waits_for, &stage, &needs);
        if (!blocked(clock, waits_for, &(int){0}, &(int){0}, &(enum sl_action_kind){0})) break;
        rank = waits_for;
    }
    char text[400] = "";
    size_t used = 0;
    const int first = rank;
    do {
        const struct sl_action *action = blocked(clock, rank, &waits_for, &stage, &needs);
        if (!action) break;
        const int length = snprintf(text + used, sizeof text - used,
                                    "%srank %d waits with %d%c%d for %d%c%d of rank %d", used ? ", " : "", rank,
                                    sl_schedule_stage(schedule, rank, action->loop), sl_action_letter(action->kind),
                                    action->microbatch, stage, sl_action_letter(needs), action->microbatch, waits_for);
        if (length < 0 || used + (size_t)length >= sizeof text - 4) {
            strcpy(text + used, used ? ", ..." : "...");
            break;
        }
        used += (size_t)length;
        rank = waits_for;
    } while (rank != first);
    return sl_error_set(clock->error, SL_BAD_INPUT, "schedule %s: deadlock: %s", schedule->name, text);
}

static int run(struct clock *clock, int *before) {
    const struct sl_schedule *schedule = clock->schedule;
    for (int time = 0;; time++) {
        bool moved = false, left = false;
        memcpy(before, clock->next, (size_t)schedule->ranks * sizeof *before);
        for (int r = 0; r < schedule->ranks; r++) moved = advance(clock, r, time) || moved;
        for (int r = 0; r < schedule->ranks; r++) {
            note_done(clock, r, before[r]);
            left = left || clock->next[r] < schedule->rank[r].count;
        }
        if (!left) return SL_OK;
        if (!moved) return explain(clock);
    }
}

int sl_schedule_clock(struct sl_schedule *schedule, struct sl_error *error) {
    const size_t cells = (size_t)sl_schedule_stages(schedule) * (size_t)schedule->microbatches;
    const size_t ranks = (size_t)schedule->ranks;
    int *memory = malloc((2 * ranks + 2 * cells) * sizeof *memory);
    if (!memory) return sl_error_set(error, SL_FAILED, "schedule %s: no memory", schedule->name);
    struct clock clock = {schedule, memory, memory + 2 * ranks, memory + 2 * ranks + cells, error};
    memset(memory, 0, 2 * ranks * sizeof *memory);
    for (size_t i = 0; i < 2 * cells; i++) clock.forward_done[i] = NEVER;
    const int status = run(&clock, memory + ranks);
    free(memory);
    return status;
}
