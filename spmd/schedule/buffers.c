/* buffers.c - how much room a lowered table needs: slots of the channels, microbatches of the stash. */
#include <stdlib.h>

#include "spmd/schedule/schedule.h"

int sl_schedule_slots(const struct sl_schedule *schedule, int fewest, int *slots, struct sl_error *error) {
    const int all = schedule->loops * schedule->microbatches; /* that one rank can send another */
    int enough = fewest, few = fewest - 1;
    struct sl_error refused; /* of a number that is too small */
    *slots = fewest;
    if (sl_schedule_check(schedule, fewest, 1, NULL, &refused) == SL_OK) return SL_OK;
    if (all > fewest) enough = all;
    SL_TRY(sl_schedule_check(schedule, enough, 1, NULL, error));
    while (enough - few > 1) {
        const int middle = few + (enough - few) / 2;
        if (sl_schedule_check(schedule, middle, 1, NULL, &refused) == SL_OK)
            enough = middle;
        else
            few = middle;
    }
    *slots = enough;
    return SL_OK;
}

/* Whether an action makes what weight gradients will use. */
typedef bool makes_function(enum sl_action_kind kind);
static bool is_forward(enum sl_action_kind kind) { return kind == SL_FORWARD; }

/* LOOP's actions of RANK that make, and its weight gradients, as they come along. Groups before NEXT are done. */
static int window_of(const struct sl_schedule *schedule, int rank, int loop, int group, makes_function *makes,
                     bool *due) {
    int next = 0, highest = 0, lowest = schedule->microbatches, window = 0;
    for (int i = 0; i < schedule->microbatches; i++) due[i] = false;
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        const int first = action->microbatch / group * group;
        if (action->loop != loop) continue;
        if (makes(action->kind) && first + group > highest) highest = first + group;
        if (makes(action->kind) && first < lowest) lowest = first;
        /* What has not been made yet takes no room: microbatches may come in descending order. */
        if (highest - (lowest > next ? lowest : next) > window) window = highest - (lowest > next ? lowest : next);
        if (!sl_has_weight_gradient(action->kind)) continue;
        due[action->microbatch] = true;
        for (bool whole = true; next < schedule->microbatches;) {
            for (int i = 0; i < group; i++) whole = whole && due[next + i];
            if (!whole) break;
            next += group;
        }
    }
    return window;
}

static int widest(const struct sl_schedule *schedule, int rank, int group, makes_function *makes) {
    bool *due = calloc((size_t)schedule->microbatches, sizeof *due);
    int window = due ? group : schedule->microbatches; /* without memory here: room for all is always enough */
    for (int l = 0; due && l < schedule->loops; l++) {
        const int needed = window_of(schedule, rank, l, group, makes, due);
        if (needed > window) window = needed;
    }
    free(due);
    return window;
}

int sl_schedule_window(const struct sl_schedule *schedule, int rank, int group) {
    return widest(schedule, rank, group, is_forward);
}

int sl_schedule_backward_window(const struct sl_schedule *schedule, int rank, int group) {
    return widest(schedule, rank, group, sl_has_input_gradient);
}
