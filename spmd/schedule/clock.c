/* clock.c - sets the times of a table's compute actions: every cell runs in its earliest iteration.
 *
 * It works on cells, not actions, because the two actions of a pair begin together. If no rank can advance any more,
 * each waiting rank waits for another one. Following these waits leads into a circle, which is the explanation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/schedule.h"

struct clock {
    const struct sl_schedule *schedule;
    int *next;                         /* [ranks] first action of the rank's next cell */
    int *forward_done, *backward_done; /* [stages][microbatches] iteration, or NEVER */
    int *awake, *soon;                 /* [ranks] the ranks to visit in this iteration, and in the next one */
    int awakes, soons;
    bool *wakes; /* [ranks] whether the rank is in SOON */
    struct sl_error *error;
};

enum { NEVER = -1 };

static size_t cell_of(const struct clock *clock, int stage, int microbatch) {
    return (size_t)stage * (size_t)clock->schedule->microbatches + (size_t)microbatch;
}

/* Returns the stage of a missing prerequisite of ACTION, one not done before iteration TIME, and FORWARD or BACKWARD in
 * *NEEDS; -1: nothing is missing. */
static int missing(const struct clock *clock, int rank, const struct sl_action *action, int time,
                   enum sl_action_kind *needs) {
    const struct sl_schedule *schedule = clock->schedule;
    const int stage = sl_schedule_stage(schedule, rank, action->loop), i = action->microbatch;
    const int *forward = clock->forward_done, *backward = clock->backward_done;
    const bool last = sl_schedule_is_last(schedule, stage);
    int from = NEVER, done = NEVER;
    if (action->kind == SL_FORWARD) {
        if (sl_schedule_is_first(schedule, stage)) return -1;
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

/* Runs the next cell of RANK, if it can run in iteration TIME. */
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

/* Schedules a visit of RANK in the next iteration: only ranks that have received new results can advance. */
static void wake(struct clock *clock, int rank) {
    if (clock->wakes[rank]) return;
    clock->wakes[rank] = true;
    clock->soon[clock->soons++] = rank;
}

static void wake_stage(struct clock *clock, int stage) {
    if (stage >= 0 && stage < sl_schedule_stages(clock->schedule))
        wake(clock, sl_schedule_rank_of(clock->schedule, stage));
}

/* Records results. Call it after all ranks have been visited, because results can be used only in the next
 * iteration. */
static void note_done(struct clock *clock, int rank, int begin) {
    const struct sl_rank_schedule *actions = &clock->schedule->rank[rank];
    for (int i = begin; i < clock->next[rank]; i++) {
        const struct sl_action *action = &actions->action[i];
        const int stage = sl_schedule_stage(clock->schedule, rank, action->loop);
        const size_t cell = cell_of(clock, stage, action->microbatch);
        int *done = action->kind == SL_FORWARD ? clock->forward_done : clock->backward_done;
        if (action->kind == SL_WEIGHT_GRADIENT) continue;
        for (int m = 0; m < sl_schedule_run(clock->schedule, action->kind); m++) done[cell + (size_t)m] = action->time;
        wake_stage(clock, action->kind == SL_FORWARD ? stage + 1 : stage - 1);
    }
    wake(clock, rank);
}

/* Returns the action of RANK's next cell that cannot run, and the rank it waits for; NULL: there is none. */
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

/* Follows waiting ranks from a stuck one until a rank repeats, or has nothing left to do; then reports the circle, or
 * the last step. */
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

/* Begins an iteration, in which the ranks in SOON are visited. */
static void begin_iteration(struct clock *clock) {
    int *spare = clock->awake;
    clock->awake = clock->soon;
    clock->awakes = clock->soons;
    clock->soon = spare;
    clock->soons = 0;
    for (int i = 0; i < clock->awakes; i++) clock->wakes[clock->awake[i]] = false;
}

/* Runs all cells. BEFORE [ranks] is scratch memory: each rank's next cell before the iteration. */
static int run(struct clock *clock, int *before) {
    const struct sl_schedule *schedule = clock->schedule;
    int left = 0; /* ranks with remaining cells */
    for (int r = 0; r < schedule->ranks; r++) {
        wake(clock, r);
        left += schedule->rank[r].count > 0;
    }
    for (int time = 0; left; time++) {
        int moved = 0;
        begin_iteration(clock);
        for (int i = 0; i < clock->awakes; i++) {
            const int rank = clock->awake[i];
            before[rank] = clock->next[rank];
            if (advance(clock, rank, time)) clock->awake[moved++] = rank;
        }
        if (!moved) return explain(clock);
        for (int i = 0; i < moved; i++) {
            const int rank = clock->awake[i];
            note_done(clock, rank, before[rank]);
            left -= clock->next[rank] == schedule->rank[rank].count;
        }
    }
    return SL_OK;
}

int sl_schedule_clock(struct sl_schedule *schedule, struct sl_error *error) {
    SL_TRY(sl_schedule_check_actions(schedule, error));
    const size_t cells = (size_t)sl_schedule_stages(schedule) * (size_t)schedule->microbatches;
    const size_t ranks = (size_t)schedule->ranks;
    int *memory = malloc((4 * ranks + 2 * cells) * sizeof *memory);
    bool *wakes = calloc(ranks, sizeof *wakes);
    int status = SL_FAILED;
    if (memory && wakes) {
        int *done = memory + 4 * ranks;
        struct clock clock = {.schedule = schedule,
                              .next = memory,
                              .forward_done = done,
                              .backward_done = done + cells,
                              .awake = memory + ranks,
                              .soon = memory + 2 * ranks,
                              .wakes = wakes,
                              .error = error};
        memset(memory, 0, ranks * sizeof *memory);
        for (size_t i = 0; i < 2 * cells; i++) done[i] = NEVER;
        status = run(&clock, memory + 3 * ranks);
    } else {
        sl_error_set(error, SL_FAILED, "schedule %s: no memory", schedule->name);
    }
    free(memory);
    free(wakes);
    return status;
}
