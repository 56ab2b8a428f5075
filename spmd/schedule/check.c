/* check.c - walks a lowered table as the executor would, and proves that the walk ends.
 *
 * Every rank advances while its next action can run. As there, a slot is acquired before its contents are computed, and
 * what was taken for immediate use stays in its slot until it has been used. What no rank can do any more is a
 * deadlock; what an action finds in the wrong state is a broken table. Channels are first in, first out, one for each
 * ordered pair of ranks and direction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/schedule.h"

/* Of one microbatch in one stage. */
struct cell {
    bool forward, input_gradient, weight_gradient; /* done */
    bool weight_waits;                             /* it is due, and runs once the gradient has been sent */
};

/* The messages from one rank to another in one direction: stage * microbatches + microbatch in order of sending. */
struct wire {
    int from, to, sent, taken, released, *message;
    int acquired; /* whose slot has been acquired and not yet posted, or NOTHING */
};

/* What a rank has at hand: messages' numbers, or NOTHING. */
struct hands {
    int state, gradient;             /* last taken, in their slots */
    int *kept_state, *kept_gradient; /* [microbatches] rows of the stage-input buffers */
};

struct walk {
    const struct sl_schedule *schedule;
    int slots, group;
    int *next;           /* [ranks] */
    struct cell *cell;   /* [stages][microbatches] */
    struct wire *wire;   /* each used by the edges below */
    int *edge;           /* [2][stages]: the wire of what stage s sends on (activations), and back (gradients) */
    struct hands *hands; /* [ranks] */
    int *weights;        /* [stages]: first microbatch of the next weight-gradient group */
    int *held, *most;    /* [ranks] microbatches between F and W, over all loops: now, and the most */
    int *reductions;     /* [stages] */
    struct sl_error *error;
};

enum { NOTHING = -1 };
enum { BLOCKED = -1 }; /* beside SL_OK and a broken table's status */

static int message_of(const struct walk *walk, int stage, int microbatch) {
    return stage * walk->schedule->microbatches + microbatch;
}

static int stage_of(const struct walk *walk, int rank, const struct sl_action *action) {
    return sl_schedule_stage(walk->schedule, rank, action->loop);
}

static bool is_last(const struct walk *walk, int stage) { return stage == sl_schedule_stages(walk->schedule) - 1; }

/* ---- explanations ---- */

static const char *kind_name(enum sl_action_kind kind) {
    static const char *const name[SL_ACTION_KINDS] = {"forward",
                                                      "backward",
                                                      "input gradient",
                                                      "weight gradient",
                                                      "send of the activation",
                                                      "take of the activation",
                                                      "send of the gradient",
                                                      "take of the gradient",
                                                      "reduction"};
    return name[kind];
}

static int broken(const struct walk *walk, int rank, const struct sl_action *action, const char *why) {
    return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d, %s of microbatch %d in stage %d: %s",
                        walk->schedule->name, rank, kind_name(action->kind), action->microbatch,
                        stage_of(walk, rank, action), why);
}

/* The wire that ACTION sends on, or has to have a slot of before it computes; NULL: none. */
static struct wire *sends_on(const struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action), stages = sl_schedule_stages(walk->schedule);
    const bool forward = action->kind == SL_FORWARD || action->kind == SL_SEND_ACTIVATION;
    if (forward) return is_last(walk, stage) ? NULL : &walk->wire[walk->edge[stage]];
    if (action->kind == SL_SEND_GRADIENT || sl_has_input_gradient(action->kind))
        return stage == 0 ? NULL : &walk->wire[walk->edge[stages + stage]];
    return NULL;
}

static struct wire *takes_from(const struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action), stages = sl_schedule_stages(walk->schedule);
    return &walk->wire[action->kind == SL_TAKE_ACTIVATION ? walk->edge[stage - 1] : walk->edge[stages + stage + 1]];
}

static const struct sl_action *next_of(const struct walk *walk, int rank) {
    const struct sl_rank_schedule *actions = &walk->schedule->rank[rank];
    return walk->next[rank] < actions->count ? &actions->action[walk->next[rank]] : NULL;
}

/* The rank that RANK, which is stuck, waits for. */
static int waits_for(const struct walk *walk, int rank) {
    const struct sl_action *action = next_of(walk, rank);
    if (action->kind == SL_TAKE_ACTIVATION || action->kind == SL_TAKE_GRADIENT)
        return takes_from(walk, rank, action)->from;
    return sends_on(walk, rank, action)->to;
}

/* From RANK on, each waits for the next: the ranks in the circle that this leads to, *FIRST is one of them; 0 where it
 * leads to a rank that has nothing left to do, the one before which is *FIRST. */
static int circle(const struct walk *walk, int rank, int *first) {
    for (int i = 0; i < walk->schedule->ranks; i++) {
        *first = rank;
        rank = waits_for(walk, rank);
        if (!next_of(walk, rank)) return 0;
    }
    *first = rank;
    int length = 0;
    do {
        rank = waits_for(walk, rank);
        length++;
    } while (rank != *first);
    return length;
}

/* Tells the shortest circle of ranks that wait for each other. */
static int explain(const struct walk *walk) {
    int shortest = walk->schedule->ranks + 1, first = 0;
    for (int r = 0; r < walk->schedule->ranks; r++) {
        int start;
        if (!next_of(walk, r)) continue;
        const int length = circle(walk, r, &start);
        if (length >= shortest) continue;
        shortest = length;
        first = start;
    }
    char text[400] = "";
    int rank = first;
    for (int i = 0; i < (shortest ? shortest : 1); i++) {
        const struct sl_action *action = next_of(walk, rank);
        const bool takes = action->kind == SL_TAKE_ACTIVATION || action->kind == SL_TAKE_GRADIENT;
        char line[160];
        const int to = waits_for(walk, rank);
        const int length =
            snprintf(line, sizeof line, "%srank %d in the %s of microbatch %d in stage %d waits for %s%d",
                     i ? ", " : "", rank, kind_name(action->kind), action->microbatch, stage_of(walk, rank, action),
                     takes ? "rank " : "a free buffer of rank ", to);
        if (strlen(text) + (size_t)length + 8 > sizeof text) {
            strcat(text, ", ...");
            break;
        }
        strcat(text, line);
        rank = to;
    }
    return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: deadlock: %s%s", walk->schedule->name, text,
                        shortest ? "" : ", which has nothing left to do");
}

/* ---- one action each ---- */

static bool has_slot(const struct walk *walk, const struct wire *wire) {
    return wire->sent - wire->released < walk->slots;
}

/* A slot of WIRE (NULL: none is needed) for what is to be computed. */
static int acquire(const struct walk *walk, int rank, const struct sl_action *action, struct wire *wire, int message) {
    if (!wire) return SL_OK;
    if (wire->acquired != NOTHING) return broken(walk, rank, action, "what was computed before has not been sent");
    if (!has_slot(walk, wire)) return BLOCKED;
    wire->acquired = message;
    return SL_OK;
}

/* The weight gradients that have become due run in groups, in ascending order. */
static void run_weight_gradients(struct walk *walk, int rank, int stage) {
    int *next = &walk->weights[stage];
    for (; *next < walk->schedule->microbatches; *next += walk->group) {
        for (int i = 0; i < walk->group; i++)
            if (!walk->cell[message_of(walk, stage, *next + i)].weight_gradient) return;
        walk->held[rank] -= walk->group;
    }
}

static int send_message(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    struct wire *wire = sends_on(walk, rank, action);
    const bool activation = action->kind == SL_SEND_ACTIVATION;
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    if (!wire) return broken(walk, rank, action, "no stage could take it");
    if (action->peer != wire->to) return broken(walk, rank, action, "its peer does not hold that stage");
    if (!(activation ? cell->forward : cell->input_gradient))
        return broken(walk, rank, action, "it is sent before it was computed");
    if (action->update >= 0 && (activation || walk->hands[rank].kept_gradient[action->update] != message))
        return broken(walk, rank, action, "its row of the stage-input buffer holds another one");
    if (wire->acquired != (action->update >= 0 ? NOTHING : message))
        return broken(walk, rank, action, "its buffer holds another one");
    if (action->update >= 0 && !has_slot(walk, wire)) return BLOCKED;
    wire->acquired = NOTHING;
    wire->message[wire->sent++] = message_of(walk, activation ? stage + 1 : stage - 1, action->microbatch);
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
    if (activation ? stage == 0 : is_last(walk, stage)) return broken(walk, rank, action, "no stage could send it");
    struct wire *wire = takes_from(walk, rank, action);
    if (action->peer != wire->from) return broken(walk, rank, action, "its peer does not hold that stage");
    if (wire->taken == wire->sent) return BLOCKED;
    if (wire->message[wire->taken] != message) return broken(walk, rank, action, "the peer sends another one first");
    wire->taken++;
    if (action->update < 0 || !activation) {
        int *hand = activation ? &hands->state : &hands->gradient;
        if (*hand != NOTHING) return broken(walk, rank, action, "the one taken before has not been used");
        *hand = message;
    } else {
        wire->released++;
        hands->kept_state[action->update] = message;
    }
    return SL_OK;
}

/* Uses up what HAND holds, which has to be MESSAGE, and gives its slot back. */
static bool use(int *hand, int message, struct wire *wire) {
    if (*hand != message) return false;
    *hand = NOTHING;
    wire->released++;
    return true;
}

static int forward(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    struct hands *hands = &walk->hands[rank];
    if (cell->forward) return broken(walk, rank, action, "it was done before");
    const int acquired = acquire(walk, rank, action, sends_on(walk, rank, action), message);
    if (acquired) return acquired;
    if (stage > 0) {
        const bool there = action->input >= 0 ? hands->kept_state[action->input] == message
                                              : use(&hands->state, message, &walk->wire[walk->edge[stage - 1]]);
        if (!there) return broken(walk, rank, action, "its input has not been taken");
    }
    cell->forward = true;
    if (++walk->held[rank] > walk->most[rank]) walk->most[rank] = walk->held[rank];
    return SL_OK;
}

static int input_gradient(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = stage_of(walk, rank, action), message = message_of(walk, stage, action->microbatch);
    struct hands *hands = &walk->hands[rank];
    if (cell->input_gradient) return broken(walk, rank, action, "it was done before");
    if (!cell->forward) return broken(walk, rank, action, "its forward comes later");
    const int acquired = acquire(walk, rank, action, action->input < 0 ? sends_on(walk, rank, action) : NULL, message);
    if (acquired) return acquired;
    if (!is_last(walk, stage) &&
        !use(&hands->gradient, message, &walk->wire[walk->edge[sl_schedule_stages(walk->schedule) + stage + 1]]))
        return broken(walk, rank, action, "its gradient has not been taken");
    if (stage > 0 && action->input >= 0) hands->kept_gradient[action->input] = message;
    cell->input_gradient = true;
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
    cell->weight_gradient = true;
    cell->weight_waits = action->kind == SL_BACKWARD && stage > 0;
    if (!cell->weight_waits) run_weight_gradients(walk, rank, stage);
    return SL_OK;
}

static int reduce(struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action);
    if (walk->reductions[stage]++) return broken(walk, rank, action, "it was done before");
    for (int i = 0; i < walk->schedule->microbatches; i++) {
        if (!walk->cell[message_of(walk, stage, i)].weight_gradient)
            return broken(walk, rank, action, "a weight gradient of its loop comes later");
    }
    run_weight_gradients(walk, rank, stage);
    return SL_OK;
}

/* The columns by which the executor finds its rows and parameters. A row that is kept is the microbatch's. */
static const char *wrong_column(const struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = stage_of(walk, rank, action), row = action->microbatch;
    const bool computes = action->kind <= SL_WEIGHT_GRADIENT;
    if (action->params != action->loop) return "its params are another loop's";
    if (action->update >= 0 && action->update != row) return "its update is not its row of the stage-input buffer";
    if (!computes) return NULL;
    if (stage == 0 ? action->input != row : action->input >= 0 && action->input != row)
        return "its input is not its row";
    if (action->output != (is_last(walk, stage) ? row : -1)) return "its output is not its row of the output buffer";
    return NULL;
}

static int step(struct walk *walk, int rank, const struct sl_action *action) {
    const struct sl_schedule *schedule = walk->schedule;
    if ((int)action->kind < 0 || action->kind >= SL_ACTION_KINDS)
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d has an action of unknown kind %d",
                            schedule->name, rank, (int)action->kind);
    if (action->loop < 0 || action->loop >= schedule->loops || action->microbatch < 0 ||
        action->microbatch >= schedule->microbatches)
        return sl_error_set(walk->error, SL_BAD_INPUT,
                            "schedule %s: rank %d, %s: there is no microbatch %d or no loop %d", schedule->name, rank,
                            kind_name(action->kind), action->microbatch, action->loop);
    const char *wrong = wrong_column(walk, rank, action);
    if (wrong) return broken(walk, rank, action, wrong);
    struct cell *cell = &walk->cell[message_of(walk, stage_of(walk, rank, action), action->microbatch)];
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
    case SL_ACTION_KINDS:
        break;
    }
    return SL_BAD_INPUT; /* refused above */
}

/* ---- the walk ---- */

/* What must hold once no rank can move any more. */
static int check_end(const struct walk *walk, int wires) {
    const struct sl_schedule *schedule = walk->schedule;
    const int stages = sl_schedule_stages(schedule);
    for (int r = 0; r < schedule->ranks; r++)
        if (next_of(walk, r)) return explain(walk);
    for (int c = 0; c < stages * schedule->microbatches; c++) {
        if (walk->cell[c].forward && walk->cell[c].weight_gradient) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: microbatch %d has no %s in stage %d",
                            schedule->name, c % schedule->microbatches,
                            walk->cell[c].forward ? "weight gradient" : "forward", c / schedule->microbatches);
    }
    for (int w = 0; w < wires; w++) {
        if (walk->wire[w].sent == walk->wire[w].taken) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d sends rank %d what is never taken",
                            schedule->name, walk->wire[w].from, walk->wire[w].to);
    }
    for (int s = 0; s < stages; s++) {
        if (walk->reductions[s] == 1) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d has no reduction of loop %d",
                            schedule->name, sl_schedule_rank_of(schedule, s), sl_schedule_loop_of(schedule, s));
    }
    return SL_OK;
}

static int walk_to_the_end(struct walk *walk, int wires) {
    const struct sl_schedule *schedule = walk->schedule;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < schedule->ranks; r++) {
            for (const struct sl_action *action; (action = next_of(walk, r)); walk->next[r]++) {
                const int status = step(walk, r, action);
                if (status == BLOCKED) break;
                if (status) return status;
                moved = true;
            }
        }
    }
    return check_end(walk, wires);
}

/* The wire between the ranks of two neighbouring stages: one for each pair of ranks and direction. */
static int find_wire(struct walk *walk, int *wires, int first, int from, int to) {
    for (int w = first; w < *wires; w++)
        if (walk->wire[w].from == from && walk->wire[w].to == to) return w;
    walk->wire[*wires] = (struct wire){.from = from, .to = to, .acquired = NOTHING};
    return (*wires)++;
}

/* Returns the number of wires; -1 without memory. */
static int make_wires(struct walk *walk) {
    const struct sl_schedule *schedule = walk->schedule;
    const int stages = sl_schedule_stages(schedule);
    int wires = 0;
    for (int s = 0; s < stages - 1; s++)
        walk->edge[s] =
            find_wire(walk, &wires, 0, sl_schedule_rank_of(schedule, s), sl_schedule_rank_of(schedule, s + 1));
    const int gradients = wires;
    for (int s = 1; s < stages; s++)
        walk->edge[stages + s] =
            find_wire(walk, &wires, gradients, sl_schedule_rank_of(schedule, s), sl_schedule_rank_of(schedule, s - 1));
    for (int w = 0; w < wires; w++) {
        size_t sends = 1;
        const struct sl_rank_schedule *from = &schedule->rank[walk->wire[w].from];
        for (int i = 0; i < from->count; i++)
            sends += from->action[i].kind == (w < gradients ? SL_SEND_ACTIVATION : SL_SEND_GRADIENT);
        walk->wire[w].message = calloc(sends, sizeof(int));
        if (!walk->wire[w].message) return -1;
    }
    return wires;
}

static bool take_memory(struct walk *walk) {
    const size_t ranks = (size_t)walk->schedule->ranks, stages = (size_t)sl_schedule_stages(walk->schedule);
    const size_t microbatches = (size_t)walk->schedule->microbatches;
    walk->next = calloc(3 * ranks, sizeof *walk->next);
    walk->cell = calloc(stages * microbatches, sizeof *walk->cell);
    walk->wire = calloc(2 * stages, sizeof *walk->wire);
    walk->edge = calloc(4 * stages, sizeof *walk->edge);
    walk->hands = calloc(ranks, sizeof *walk->hands);
    if (!walk->next || !walk->cell || !walk->wire || !walk->edge || !walk->hands) return false;
    walk->held = walk->next + ranks;
    walk->most = walk->held + ranks;
    walk->weights = walk->edge + 2 * stages;
    walk->reductions = walk->weights + stages;
    for (size_t r = 0; r < ranks; r++) {
        int *rows = malloc(2 * microbatches * sizeof *rows);
        if (!rows) return false;
        for (size_t i = 0; i < 2 * microbatches; i++) rows[i] = NOTHING;
        walk->hands[r] = (struct hands){NOTHING, NOTHING, rows, rows + microbatches};
    }
    return true;
}

static void give_memory(struct walk *walk) {
    for (int w = 0; walk->wire && w < 2 * sl_schedule_stages(walk->schedule); w++) free(walk->wire[w].message);
    for (int r = 0; walk->hands && r < walk->schedule->ranks; r++) free(walk->hands[r].kept_state);
    free(walk->next);
    free(walk->cell);
    free(walk->wire);
    free(walk->edge);
    free(walk->hands);
}

int sl_schedule_check(const struct sl_schedule *schedule, int slots, int group, int *stash, struct sl_error *error) {
    if (!schedule->lowered)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s has not been lowered", schedule->name);
    if (group < 1 || schedule->microbatches % group)
        return sl_error_set(error, SL_BAD_INPUT, "%d microbatches do not divide into weight-gradient groups of %d",
                            schedule->microbatches, group);
    struct walk walk = {.schedule = schedule, .slots = slots, .group = group, .error = error};
    const int wires = take_memory(&walk) ? make_wires(&walk) : -1;
    const int status = wires < 0 ? sl_error_set(error, SL_FAILED, "schedule %s: no memory to check it", schedule->name)
                                 : walk_to_the_end(&walk, wires);
    if (status == SL_OK && stash) memcpy(stash, walk.most, (size_t)schedule->ranks * sizeof *stash);
    give_memory(&walk);
    return status;
}
