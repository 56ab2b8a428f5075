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

/* Whether a kind of action makes what the weight gradient will use. */
typedef bool makes_function(enum sl_action_kind kind);
static bool is_forward(enum sl_action_kind kind) { return kind == SL_FORWARD; }

/* The microbatches of one loop that the stash holds. */
struct window {
    int microbatches, group;
    int lowest, highest; /* of the groups that have been made, HIGHEST excluded */
    int next;            /* the groups below it have had their weight gradients */
    bool *due;           /* [microbatches] weight gradients that have come along */
};

static void make_microbatch(struct window *window, int microbatch) {
    const int first = microbatch / window->group * window->group;
    if (first + window->group > window->highest) window->highest = first + window->group;
    if (first < window->lowest) window->lowest = first;
}

/* Microbatches may be made in descending order, and what has not been made takes no room. */
static int width(const struct window *window) {
    return window->highest - (window->lowest > window->next ? window->lowest : window->next);
}

/* Groups run in ascending order, each once all its microbatches are due. */
static void use_microbatch(struct window *window, int microbatch) {
    window->due[microbatch] = true;
    for (; window->next < window->microbatches; window->next += window->group) {
        for (int i = 0; i < window->group; i++)
            if (!window->due[window->next + i]) return;
    }
}

/* The widest that LOOP's window becomes as RANK's actions come along. */
static int window_of(const struct sl_schedule *schedule, int rank, int loop, int group, makes_function *makes,
                     bool *due) {
    const int microbatches = schedule->microbatches;
    struct window window = {.microbatches = microbatches, .group = group, .lowest = microbatches, .due = due};
    int most = 0;
    for (int i = 0; i < microbatches; i++) due[i] = false;
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        if (action->loop != loop) continue;
        if (makes(action->kind)) make_microbatch(&window, action->microbatch);
        if (width(&window) > most) most = width(&window);
        if (sl_has_weight_gradient(action->kind)) use_microbatch(&window, action->microbatch);
    }
    return most;
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
