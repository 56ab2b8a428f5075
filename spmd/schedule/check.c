/* check.c - walks a lowered table as the executor would, and proves that the walk ends.
 *
 * Every rank advances while its next action can run. As in the executor, a slot is acquired before its contents are
 * computed, and a message that is not copied stays in its slot until it has been used. If some actions remain and no
 * rank can advance, there is a deadlock. If an action finds a wrong state, the table is broken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/deadlock.h"
#include "spmd/schedule/turns.h"
#include "spmd/schedule/wires.h"

/* State of one microbatch in one stage. */
struct cell {
    bool forward : 1, input_gradient : 1, weight_gradient : 1; /* done */
    bool weight_waits : 1;                                     /* the weight gradient is due, and runs after the
                                                                  gradient has been sent */
};

/* Data that a rank holds: messages' numbers, stage * microbatches + microbatch, or SL_NO_MESSAGE. */
struct hands {
    int state, gradient; /* last ones received, in their slots */
    /* [microbatches] rows of the stage-input buffers; NULL if none is saved */
    int *kept_state, *kept_gradient;
};

struct walk {
    const struct sl_schedule *schedule;
    int slots, group;
    bool grows; /* if the walk is stuck, add one slot */
    struct sl_turns turns;
    int *next;         /* [ranks] */
    struct cell *cell; /* [stages][microbatches] */
    struct sl_wires wires;
    struct hands *hands; /* [ranks] */
    int *weights;        /* [stages]: first microbatch of the next weight-gradient group */
    int *ready;          /* [stages]: weight gradients of all microbatches below it are due */
    int *held, *most;    /* [ranks] microbatches between F and W, over all loops: now, and the most */
    int *reductions;     /* [stages] */
    int *waits;          /* [3 * ranks] for the explanation */
    struct sl_error *error;
};

enum { BLOCKED = -1 }; /* further result besides SL_OK and the status of a broken table */

static int message_of(const struct walk *walk, int stage, int microbatch) {
    return stage * walk->schedule->microbatches + microbatch;
}

static int stage_of(const struct walk *walk, int rank, const struct sl_action *action) {
    return sl_schedule_stage(walk->schedule, rank, action->loop);
}

static bool is_first(const struct walk *walk, int stage) { return sl_schedule_is_first(walk->schedule, stage); }
static bool is_last(const struct walk *walk, int stage) { return sl_schedule_is_last(walk->schedule, stage); }

/* ---- explanations ---- */

static int no_memory(const struct walk *walk) {
    return sl_error_set(walk->error, SL_FAILED, "schedule %s: no memory to check it", walk->schedule->name);
}

static int broken(const struct walk *walk, int rank, const struct sl_action *action, const char *why) {
    return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d, %s of microbatch %d in stage %d: %s",
                        walk->schedule->name, rank, sl_action_name(action->kind), action->microbatch,
                        stage_of(walk, rank, action), why);
}

/* The wire on which ACTION sends, or on which it must acquire a slot before it computes; NULL: none. */
static struct sl_wire *sends_on(const struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action), stages = sl_schedule_stages(walk->schedule);
    const bool forward = action->kind == SL_FORWARD || action->kind == SL_SEND_ACTIVATION;
    if (forward) return is_last(walk, stage) ? NULL : &walk->wires.wire[walk->wires.edge[stage]];
    if (action->kind == SL_SEND_GRADIENT || sl_has_input_gradient(action->kind))
        return is_first(walk, stage) ? NULL : &walk->wires.wire[walk->wires.edge[stages + stage]];
    return NULL;
}

static bool takes(const struct sl_action *action) {
    return action->kind == SL_TAKE_ACTIVATION || action->kind == SL_TAKE_GRADIENT;
}

static struct sl_wire *takes_from(const struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action), stages = sl_schedule_stages(walk->schedule);
    return &walk->wires.wire[walk->wires.edge[action->kind == SL_TAKE_ACTIVATION ? stage - 1 : stages + stage + 1]];
}

static const struct sl_action *next_of(const struct walk *walk, int rank) {
    const struct sl_rank_schedule *actions = &walk->schedule->rank[rank];
    return walk->next[rank] < actions->count ? &actions->action[walk->next[rank]] : NULL;
}

/* The rank for which RANK, which cannot advance, waits. */
static int waits_for(const struct walk *walk, int rank) {
    const struct sl_action *action = next_of(walk, rank);
    return takes(action) ? takes_from(walk, rank, action)->from : sends_on(walk, rank, action)->to;
}

/* Reports the shortest circle of ranks that wait for each other. */
static int explain(const struct walk *walk) {
    const int ranks = walk->schedule->ranks;
    int first;
    for (int r = 0; r < ranks; r++) walk->waits[r] = next_of(walk, r) ? waits_for(walk, r) : SL_WAITS_FOR_NOBODY;
    const int shortest = sl_deadlock_circle(ranks, walk->waits, walk->waits + ranks, &first);
    char text[400] = "";
    int rank = first;
    for (int i = 0; i < (shortest ? shortest : 1); i++) {
        const struct sl_action *action = next_of(walk, rank);
        char line[160];
        const int to = waits_for(walk, rank);
        const int length =
            snprintf(line, sizeof line, "%srank %d in the %s of microbatch %d in stage %d waits for %s%d",
                     i ? ", " : "", rank, sl_action_name(action->kind), action->microbatch,
                     stage_of(walk, rank, action), takes(action) ? "rank " : "a free buffer of rank ", to);
        const size_t used = strlen(text);
        if (used + (size_t)length + 48 > sizeof text) {
            snprintf(text + used, sizeof text - used, ", and so on: a circle of %d ranks", shortest);
            break;
        }
        strcat(text, line);
        rank = to;
    }
    return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: deadlock: %s%s", walk->schedule->name, text,
                        shortest ? "" : ", which has nothing left to do");
}

/* ---- single actions ---- */

static bool has_slot(const struct walk *walk, const struct sl_wire *wire) {
    return wire->sent - wire->released < walk->slots;
}

/* Acquires a slot of WIRE (NULL: none is needed) for the result of ACTION. */
static int acquire(const struct walk *walk, int rank, const struct sl_action *action, struct sl_wire *wire,
                   int message) {
    if (!wire) return SL_OK;
    if (wire->acquired != SL_NO_MESSAGE)
        return broken(walk, rank, action, "what was computed before has not been sent");
    if (!has_slot(walk, wire)) return BLOCKED;
    wire->acquired = message;
    return SL_OK;
}

/* Runs due weight gradients in groups, in ascending order. */
static void run_weight_gradients(struct walk *walk, int rank, int stage) {
    const int end = sl_schedule_end_microbatch(walk->schedule, stage);
    int *ready = &walk->ready[stage], *next = &walk->weights[stage];
    while (*ready < end && walk->cell[message_of(walk, stage, *ready)].weight_gradient) ++*ready;
    for (; *next + walk->group <= *ready; *next += walk->group) walk->held[rank] -= walk->group;
}

/* Frees a slot; the wire's sender may wait for it. */
static void release(struct walk *walk, struct sl_wire *wire) {
    wire->released++;
    sl_turns_wake(&walk->turns, wire->from);
}

static int send_message(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    struct sl_wire *wire = sends_on(walk, rank, action);
    const bool activation = action->kind == SL_SEND_ACTIVATION;
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    if (!wire) return broken(walk, rank, action, "no stage could take it");
    if (action->peer != wire->to) return broken(walk, rank, action, "its peer does not hold that stage");
    if (!(activation ? cell->forward : cell->input_gradient))
        return broken(walk, rank, action, "it is sent before it was computed");
    if (action->has_update && (activation || walk->hands[rank].kept_gradient[action->microbatch] != message))
        return broken(walk, rank, action, "its row of the stage-input buffer holds another one");
    if (wire->acquired != (action->has_update ? SL_NO_MESSAGE : message))
        return broken(walk, rank, action, "its buffer holds another one");
    if (action->has_update && !has_slot(walk, wire)) return BLOCKED;
    wire->acquired = SL_NO_MESSAGE;
    if (!sl_wire_post(wire, message_of(walk, activation ? stage + 1 : stage - 1, action->microbatch)))
        return no_memory(walk);
    sl_turns_wake(&walk->turns, wire->to);
    if (cell->weight_waits) {
        cell->weight_waits = false;
        run_weight_gradients(walk, rank, stage);
    }
    return SL_OK;
}

static int take_message(struct walk *walk, int rank, const struct sl_action *action) {
    const bool activation = action->kind == SL_TAKE_ACTIVATION;
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    struct hands *hands = &walk->hands[rank];
    if (activation ? is_first(walk, stage) : is_last(walk, stage))
        return broken(walk, rank, action, "no stage could send it");
    struct sl_wire *wire = takes_from(walk, rank, action);
    if (action->peer != wire->from) return broken(walk, rank, action, "its peer does not hold that stage");
    const int front = sl_wire_front(wire);
    if (front == SL_NO_MESSAGE) return BLOCKED;
    if (front != message) return broken(walk, rank, action, "the peer sends another one first");
    wire->taken++;
    if (!action->has_update || !activation) {
        int *hand = activation ? &hands->state : &hands->gradient;
        if (*hand != SL_NO_MESSAGE) return broken(walk, rank, action, "the one taken before has not been used");
        *hand = message;
    } else {
        release(walk, wire);
        hands->kept_state[action->microbatch] = message;
    }
    return SL_OK;
}

/* Uses the message in HAND, which must be MESSAGE, and frees its slot. */
static bool use(struct walk *walk, int *hand, int message, struct sl_wire *wire) {
    if (*hand != message) return false;
    *hand = SL_NO_MESSAGE;
    release(walk, wire);
    return true;
}

static int forward(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    struct hands *hands = &walk->hands[rank];
    if (cell->forward) return broken(walk, rank, action, "it was done before");
    const int acquired = acquire(walk, rank, action, sends_on(walk, rank, action), message);
    if (acquired) return acquired;
    if (!is_first(walk, stage)) {
        const bool there = action->has_input
                               ? hands->kept_state[action->microbatch] == message
                               : use(walk, &hands->state, message, &walk->wires.wire[walk->wires.edge[stage - 1]]);
        if (!there) return broken(walk, rank, action, "its input has not been taken");
    }
    for (int m = 0; m < sl_schedule_run(walk->schedule, SL_FORWARD); m++, walk->held[rank]++) cell[m].forward = true;
    if (walk->held[rank] > walk->most[rank]) walk->most[rank] = walk->held[rank];
    return SL_OK;
}

static int input_gradient(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    struct hands *hands = &walk->hands[rank];
    if (cell->input_gradient) return broken(walk, rank, action, "it was done before");
    if (!cell->forward) return broken(walk, rank, action, "its forward comes later");
    const int acquired = acquire(walk, rank, action, action->has_input ? NULL : sends_on(walk, rank, action), message);
    if (acquired) return acquired;
    if (!is_last(walk, stage) &&
        !use(walk, &hands->gradient, message,
             &walk->wires.wire[walk->wires.edge[sl_schedule_stages(walk->schedule) + stage + 1]]))
        return broken(walk, rank, action, "its gradient has not been taken");
    if (!is_first(walk, stage) && action->has_input) hands->kept_gradient[action->microbatch] = message;
    for (int m = 0; m < sl_schedule_run(walk->schedule, action->kind); m++) cell[m].input_gradient = true;
    return SL_OK;
}

static int backward(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = stage_of(walk, rank, action);
    if (sl_has_input_gradient(action->kind)) {
        const int status = input_gradient(walk, rank, action, cell);
        if (status) return status;
    }
    if (!sl_has_weight_gradient(action->kind)) return SL_OK;
    if (cell->weight_gradient) return broken(walk, rank, action, "it was done before");
    if (!cell->input_gradient) return broken(walk, rank, action, "its input gradient comes later");
    for (int m = 0; m < sl_schedule_run(walk->schedule, action->kind); m++) cell[m].weight_gradient = true;
    cell->weight_waits = action->kind == SL_BACKWARD && !is_first(walk, stage);
    if (!cell->weight_waits) run_weight_gradients(walk, rank, stage);
    return SL_OK;
}

static int reduce(struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action);
    if (walk->reductions[stage]++) return broken(walk, rank, action, "it was done before");
    const int end = sl_schedule_end_microbatch(walk->schedule, stage);
    for (int i = sl_schedule_first_microbatch(walk->schedule, stage); i < end; i++) {
        if (!walk->cell[message_of(walk, stage, i)].weight_gradient)
            return broken(walk, rank, action, "a weight gradient of its loop comes later");
    }
    run_weight_gradients(walk, rank, stage);
    return SL_OK;
}

/* Checks the columns by which the executor finds its rows. */
static const char *wrong_column(const struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action);
    if (action->kind > SL_WEIGHT_GRADIENT) return NULL;
    if (is_first(walk, stage) && !action->has_input) return "its input is not its row";
    if (action->has_output != is_last(walk, stage)) return "its output is not its row of the output buffer";
    return NULL;
}

static int step(struct walk *walk, int rank, const struct sl_action *action) {
    const struct sl_schedule *schedule = walk->schedule;
    if (action->kind >= SL_ACTION_KINDS)
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d has an action of unknown kind %d",
                            schedule->name, rank, (int)action->kind);
    const int stage = action->loop < schedule->loops ? stage_of(walk, rank, action) : -1;
    if (stage < 0 || action->microbatch + sl_schedule_run(schedule, action->kind) > schedule->microbatches)
        return sl_error_set(walk->error, SL_BAD_INPUT,
                            "schedule %s: rank %d, %s: there is no microbatch %d or no loop %d", schedule->name, rank,
                            sl_action_name(action->kind), action->microbatch, action->loop);
    if (schedule->forwards && !sl_goes_forward(action->kind))
        return broken(walk, rank, action, "the table is one of forwards alone");
    const char *wrong = wrong_column(walk, rank, action);
    if (wrong) return broken(walk, rank, action, wrong);
    struct cell *cell = &walk->cell[message_of(walk, stage, action->microbatch)];
    switch (action->kind) {
    case SL_FORWARD:
        return forward(walk, rank, action, cell);
    case SL_SEND_ACTIVATION:
    case SL_SEND_GRADIENT:
        return send_message(walk, rank, action, cell);
    case SL_TAKE_ACTIVATION:
    case SL_TAKE_GRADIENT:
        return take_message(walk, rank, action);
    case SL_REDUCE:
        return reduce(walk, rank, action);
    case SL_BACKWARD:
    case SL_INPUT_GRADIENT:
    case SL_WEIGHT_GRADIENT:
        return backward(walk, rank, action, cell);
    case SL_UNSHARD:
    case SL_RESHARD:
        return SL_OK; /* checked by sl_schedule_check_shards; no rank waits for another */
    case SL_ACTION_KINDS:
        break;
    }
    return SL_BAD_INPUT; /* refused above */
}

/* ---- the walk ---- */

/* Checks the state in which no rank can advance any more. */
static int check_end(const struct walk *walk) {
    const struct sl_schedule *schedule = walk->schedule;
    const int stages = sl_schedule_stages(schedule);
    for (int r = 0; r < schedule->ranks; r++)
        if (next_of(walk, r)) return explain(walk);
    for (int c = 0; c < stages * schedule->microbatches; c++) {
        const int stage = c / schedule->microbatches, microbatch = c % schedule->microbatches;
        if (microbatch < sl_schedule_first_microbatch(schedule, stage) ||
            microbatch >= sl_schedule_end_microbatch(schedule, stage))
            continue;
        if (walk->cell[c].forward && (walk->cell[c].weight_gradient || schedule->forwards)) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: microbatch %d has no %s in stage %d",
                            schedule->name, microbatch, walk->cell[c].forward ? "weight gradient" : "forward", stage);
    }
    for (int w = 0; w < walk->wires.count; w++) {
        const struct sl_wire *wire = &walk->wires.wire[w];
        if (wire->sent == wire->taken) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d sends rank %d what is never taken",
                            schedule->name, wire->from, wire->to);
    }
    for (int s = 0; s < stages; s++) {
        if (walk->reductions[s] == 1 || schedule->forwards) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d has no reduction of loop %d",
                            schedule->name, sl_schedule_rank_of(schedule, s), sl_schedule_loop_of(schedule, s));
    }
    return SL_OK;
}

/* Adds a slot to every channel; false: no rank waits for a slot. */
static bool add_slot(struct walk *walk) {
    bool waited = false;
    for (int r = 0; r < walk->schedule->ranks; r++) {
        const struct sl_action *action = next_of(walk, r);
        if (!action || takes(action)) continue;
        sl_turns_wake(&walk->turns, r);
        waited = true;
    }
    walk->slots += waited;
    return waited;
}

static int walk_to_the_end(struct walk *walk) {
    int rank;
    sl_turns_begin(&walk->turns, walk->schedule->ranks);
    do {
        while ((rank = sl_turns_next(&walk->turns)) >= 0) {
            for (const struct sl_action *action; (action = next_of(walk, rank)); walk->next[rank]++) {
                const int status = step(walk, rank, action);
                if (status == BLOCKED) break;
                if (status) return status;
            }
        }
    } while (walk->grows && add_slot(walk));
    return check_end(walk);
}

/* ---- memory ---- */

/* Whether RANK saves received states or gradients in rows. */
static bool keeps_rows(const struct sl_schedule *schedule, int rank) {
    const struct sl_rank_schedule *actions = &schedule->rank[rank];
    for (int i = 0; i < actions->count; i++) {
        const struct sl_action *action = &actions->action[i];
        const bool first = action->loop < schedule->loops &&
                           sl_schedule_is_first(schedule, sl_schedule_stage(schedule, rank, action->loop));
        if (action->has_update || (action->has_input && !first)) return true;
    }
    return false;
}

static bool take_rows(struct walk *walk, int rank) {
    struct hands *hands = &walk->hands[rank];
    const size_t microbatches = (size_t)walk->schedule->microbatches;
    *hands = (struct hands){.state = SL_NO_MESSAGE, .gradient = SL_NO_MESSAGE};
    if (!keeps_rows(walk->schedule, rank)) return true;
    hands->kept_state = malloc(2 * microbatches * sizeof *hands->kept_state);
    if (!hands->kept_state) return false;
    hands->kept_gradient = hands->kept_state + microbatches;
    for (size_t i = 0; i < 2 * microbatches; i++) hands->kept_state[i] = SL_NO_MESSAGE;
    return true;
}

static bool take_memory(struct walk *walk) {
    const size_t ranks = (size_t)walk->schedule->ranks, stages = (size_t)sl_schedule_stages(walk->schedule);
    walk->next = calloc(6 * ranks + 3 * stages, sizeof *walk->next);
    walk->cell = calloc(stages * (size_t)walk->schedule->microbatches, sizeof *walk->cell);
    walk->hands = calloc(ranks, sizeof *walk->hands);
    if (!walk->next || !walk->cell || !walk->hands || !sl_wires_open(&walk->wires, walk->schedule)) return false;
    walk->held = walk->next + ranks;
    walk->most = walk->held + ranks;
    walk->waits = walk->most + ranks;
    walk->weights = walk->waits + 3 * ranks;
    walk->ready = walk->weights + stages;
    walk->reductions = walk->ready + stages;
    for (size_t s = 0; s < stages; s++)
        walk->weights[s] = walk->ready[s] = sl_schedule_first_microbatch(walk->schedule, (int)s);
    for (int r = 0; r < walk->schedule->ranks; r++)
        if (!take_rows(walk, r)) return false;
    return true;
}

static void give_memory(struct walk *walk) {
    sl_wires_close(&walk->wires);
    for (int r = 0; walk->hands && r < walk->schedule->ranks; r++) free(walk->hands[r].kept_state);
    free(walk->next);
    free(walk->cell);
    free(walk->hands);
}

/* Reports repeated actions: the walk would report them as waits for missing messages. */
static int find_repeated(struct walk *walk) {
    const struct sl_schedule *schedule = walk->schedule;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const bool forward = action->kind == SL_FORWARD, input = sl_has_input_gradient(action->kind),
                       weight = sl_has_weight_gradient(action->kind);
            if (action->loop >= schedule->loops || action->microbatch >= schedule->microbatches) continue;
            struct cell *cell = &walk->cell[message_of(walk, stage_of(walk, r, action), action->microbatch)];
            if ((forward && cell->forward) || (input && cell->input_gradient) || (weight && cell->weight_gradient))
                return broken(walk, r, action, "it was done before");
            cell->forward |= forward, cell->input_gradient |= input, cell->weight_gradient |= weight;
        }
    }
    memset(walk->cell, 0, (size_t)sl_schedule_stages(schedule) * (size_t)schedule->microbatches * sizeof *walk->cell);
    return SL_OK;
}

static int prove(struct walk *walk, struct sl_error *error) {
    walk->error = error;
    SL_TRY(sl_schedule_check_shards(walk->schedule, error));
    if (!take_memory(walk)) return no_memory(walk);
    SL_TRY(find_repeated(walk));
    return walk_to_the_end(walk);
}

int sl_schedule_check(const struct sl_schedule *schedule, int slots, int group, int *stash, struct sl_error *error) {
    if (!schedule->lowered)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s has not been lowered", schedule->name);
    const int each = sl_schedule_first_of_copy(schedule, 1);
    if (group < 1 || each % group)
        return sl_error_set(error, SL_BAD_INPUT, "%d microbatches do not divide into weight-gradient groups of %d",
                            each, group);
    struct walk walk = {.schedule = schedule, .slots = slots, .group = group};
    const int status = prove(&walk, error);
    if (status == SL_OK && stash) memcpy(stash, walk.most, (size_t)schedule->ranks * sizeof *stash);
    give_memory(&walk);
    return status;
}

/* If the walk is stuck, it continues with one more slot. The result is that of a walk with this slot from the start,
 * because the actions of a rank, and the contents of its channels, do not depend on time. */
int sl_schedule_slots(const struct sl_schedule *schedule, int fewest, int *slots, struct sl_error *error) {
    const int all = schedule->loops * schedule->microbatches; /* most messages from one rank to another */
    *slots = fewest;
    if (schedule->lowered) {
        struct walk walk = {.schedule = schedule, .slots = fewest, .group = 1, .grows = true};
        const int status = prove(&walk, error);
        give_memory(&walk);
        if (status == SL_OK) *slots = walk.slots;
        if (status != SL_BAD_INPUT) return status;
    }
    return sl_schedule_check(schedule, all > fewest ? all : fewest, 1, NULL, error); /* reports the error */
}
