/* buffers.c - the size of a rank's stash, in microbatches; whether weight gradients follow at once; and rooms for
 * gradients of loops. */
#include <stdlib.h>

#include "spmd/schedule/schedule.h"

/* Whether a kind of action writes the data that the weight gradient reads. */
typedef bool makes_function(enum sl_action_kind kind);
static bool is_forward(enum sl_action_kind kind) { return kind == SL_FORWARD; }

/* The stash's microbatches of one loop. */
struct window {
    int lowest, highest; /* range of groups written so far, HIGHEST excluded */
    int next;            /* the weight gradients of all groups below it have run */
    int ready;           /* weight gradients of all microbatches below it are due */
    int end;             /* end of the loop's microbatches */
    bool *due;           /* [microbatches] due weight gradients */
};

/* Adds RUN microbatches from MICROBATCH on. */
static void make_microbatches(struct window *window, int microbatch, int run, int group) {
    const int first = microbatch / group * group, end = ((microbatch + run - 1) / group + 1) * group;
    if (end > window->highest) window->highest = end;
    if (first < window->lowest) window->lowest = first;
}

/* The microbatches that need room now. Microbatches may be written in descending order; missing ones below the lowest
 * take no room. */
static int width(const struct window *window) {
    return window->highest - (window->lowest > window->next ? window->lowest : window->next);
}

/* Marks weight gradients as due. Groups run in ascending order, each once all its microbatches are due. */
static void use_microbatches(struct window *window, int microbatch, int run, int group) {
    for (int m = 0; m < run; m++) window->due[microbatch + m] = true;
    while (window->ready < window->end && window->due[window->ready]) window->ready++;
    window->next = window->ready / group * group;
}

/* Opens the window of a loop. DUE [loops][microbatches] belongs to all loops. */
static struct window open_window(const struct sl_schedule *schedule, int rank, int loop, bool *due) {
    const int stage = sl_schedule_stage(schedule, rank, loop), first = sl_schedule_first_microbatch(schedule, stage);
    return (struct window){.lowest = schedule->microbatches,
                           .next = first,
                           .ready = first,
                           .end = sl_schedule_end_microbatch(schedule, stage),
                           .due = due + (size_t)loop * (size_t)schedule->microbatches};
}

/* The largest width of any loop's WINDOW during RANK's actions. */
static int walk(const struct sl_schedule *schedule, int rank, int group, makes_function *makes, struct window *window,
                bool *due) {
    int most = group;
    for (int l = 0; l < schedule->loops; l++) window[l] = open_window(schedule, rank, l, due);
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        struct window *of = &window[action->loop];
        const int run = sl_schedule_run(schedule, action->kind);
        if (makes(action->kind)) make_microbatches(of, action->microbatch, run, group);
        if (width(of) > most) most = width(of);
        if (sl_has_weight_gradient(action->kind)) use_microbatches(of, action->microbatch, run, group);
    }
    while (most % group || most % sl_schedule_run(schedule, SL_FORWARD))
        most++; /* so that neither a group nor a run
                   wraps round */
    return most;
}

static int widest(const struct sl_schedule *schedule, int rank, int group, makes_function *makes) {
    const size_t loops = (size_t)schedule->loops;
    struct window *window = calloc(loops, sizeof *window);
    bool *due = calloc(loops * (size_t)schedule->microbatches, sizeof *due);
    const int most = window && due ? walk(schedule, rank, group, makes, window, due) : 0;
    free(window);
    free(due);
    return most;
}

int sl_schedule_window(const struct sl_schedule *schedule, int rank, int group) {
    return widest(schedule, rank, group, is_forward);
}

int sl_schedule_backward_window(const struct sl_schedule *schedule, int rank, int group) {
    return widest(schedule, rank, group, sl_has_input_gradient);
}

/* Whether RANK has only whole backwards, ascending in each loop. NEXT [loops]: the expected microbatch. */
static bool ascend_whole(const struct sl_schedule *schedule, int rank, int *next) {
    for (int l = 0; l < schedule->loops; l++)
        next[l] = sl_schedule_first_microbatch(schedule, sl_schedule_stage(schedule, rank, l));
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        if (action->kind == SL_INPUT_GRADIENT || action->kind == SL_WEIGHT_GRADIENT) return false;
        if (action->kind != SL_BACKWARD) continue;
        if (action->microbatch != next[action->loop]) return false;
        next[action->loop] += sl_schedule_run(schedule, SL_BACKWARD);
    }
    return true;
}

bool sl_schedule_weights_follow(const struct sl_schedule *schedule, int rank, int group, bool *follow) {
    int *next = calloc((size_t)schedule->loops, sizeof *next);
    *follow = next && sl_schedule_run(schedule, SL_BACKWARD) % group == 0 && ascend_whole(schedule, rank, next);
    free(next);
    return next;
}

bool sl_schedule_weights_at_once(const struct sl_schedule *schedule, int rank, int group, bool *at_once) {
    const int microbatches = schedule->microbatches;
    struct window *window = calloc((size_t)schedule->loops, sizeof *window);
    bool *due = calloc((size_t)schedule->loops * (size_t)microbatches, sizeof *due);
    const bool taken = window && due;
    *at_once = taken;
    for (int l = 0; taken && l < schedule->loops; l++) window[l] = open_window(schedule, rank, l, due);
    for (int a = 0; taken && a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        struct window *of = &window[action->loop];
        if (!sl_has_weight_gradient(action->kind)) continue;
        use_microbatches(of, action->microbatch, sl_schedule_run(schedule, action->kind), group);
        if (of->next > sl_schedule_first_microbatch(schedule, sl_schedule_stage(schedule, rank, action->loop)) &&
            of->next < of->end)
            *at_once = false;
    }
    free(window);
    free(due);
    return taken;
}

/* Takes the lowest free room. USED [loops + 1]: rooms in use. */
static int take_room(bool *used) {
    int room = 1;
    while (used[room]) room++;
    used[room] = true;
    return room;
}

static void give_rooms(const struct sl_schedule *schedule, int rank, int group, int *room, struct window *window,
                       bool *due, bool *used) {
    for (int l = 0; l < schedule->loops; l++) {
        window[l] = open_window(schedule, rank, l, due);
        room[l] = 0;
    }
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        const int l = action->loop;
        if (sl_has_weight_gradient(action->kind)) {
            const int before = window[l].next;
            use_microbatches(&window[l], action->microbatch, sl_schedule_run(schedule, action->kind), group);
            if (window[l].next > before && room[l] == 0) room[l] = take_room(used);
        }
        if (action->kind == SL_REDUCE) used[room[l]] = false;
    }
}

bool sl_schedule_gradient_rooms(const struct sl_schedule *schedule, int rank, int group, int *room) {
    const size_t loops = (size_t)schedule->loops;
    struct window *window = calloc(loops, sizeof *window);
    bool *due = calloc(loops * (size_t)schedule->microbatches, sizeof *due);
    bool *used = calloc(loops + 1, sizeof *used);
    const bool taken = window && due && used;
    if (taken) give_rooms(schedule, rank, group, room, window, due, used);
    free(window);
    free(due);
    free(used);
    return taken;
}
