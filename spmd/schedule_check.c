/* schedule_check.c - walks a lowered table as the executor would, and proves that the walk ends.
 *
 * Every rank advances while its next action can run. As there, a slot is acquired before its contents are computed, and
 * what was taken for immediate use stays in its slot until it has been used. What no rank can do any more is a
 * deadlock; what an action finds in the wrong state is a broken table. Channels are first in, first out, one for each
 * ordered pair of ranks and direction. */
#include "spmd/schedule.h"

#include <stdlib.h>
#include <string.h>

/* Of one microbatch in one stage. */
struct cell {
    bool received;          /* its input state has been taken */
    bool gradient_received; /* its output gradient has been taken */
    bool forward, input_gradient, weight_gradient;
};

/* Messages between two ranks: sent and taken counts, and what was sent. */
struct wire {
    int sent, taken, released;
    int *stage_microbatch; /* [stages * microbatches] in order of sending */
};

struct walk {
    const struct sl_schedule *schedule;
    int slots;
    int *next;         /* [ranks] */
    struct cell *cell; /* [stages][microbatches] */
    struct wire *wire; /* [2][ranks]: activations to the next rank, gradients to the previous one, by sender */
    int *held, *most;  /* [ranks * loops] microbatches between F and W: now, and the most */
    int *reductions;   /* [ranks * loops] */
    struct sl_error *error;
};

static struct cell *cell_of(const struct walk *walk, int stage, int microbatch) {
    return &walk->cell[(size_t)stage * (size_t)walk->schedule->microbatches + (size_t)microbatch];
}

static int broken(const struct walk *walk, int rank, const struct sl_action *action, const char *why) {
    static const char *const kind[SL_ACTION_KINDS] = {"forward",
                                                      "backward",
                                                      "input gradient",
                                                      "weight gradient",
                                                      "send of the activation",
                                                      "take of the activation",
                                                      "send of the gradient",
                                                      "take of the gradient",
                                                      "reduction"};
    return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d, %s of microbatch %d in stage %d: %s",
                        walk->schedule->name, rank, kind[action->kind], action->microbatch,
                        sl_schedule_stage(walk->schedule, rank, action->loop), why);
}

static struct wire *wire_of(const struct walk *walk, int rank, const struct sl_action *action) {
    const int ranks = walk->schedule->ranks;
    switch (action->kind) {
    case SL_SEND_ACTIVATION:
        return &walk->wire[rank];
    case SL_TAKE_ACTIVATION:
        return &walk->wire[action->peer];
    case SL_SEND_GRADIENT:
        return &walk->wire[ranks + rank];
    default:
        return &walk->wire[ranks + action->peer];
    }
}

/* SL_OK: done; -1: cannot run yet; otherwise the table is broken. */
enum { BLOCKED = -1 };

static bool has_slot(const struct walk *walk, const struct wire *wire) {
    return wire->sent - wire->released < walk->slots;
}

static int send_message(struct walk *walk, int rank, const struct sl_action *action, bool ready) {
    struct wire *wire = wire_of(walk, rank, action);
    const int stage = sl_schedule_stage(walk->schedule, rank, action->loop);
    const int to = action->kind == SL_SEND_ACTIVATION ? stage + 1 : stage - 1;
    if (!ready) return broken(walk, rank, action, "it is sent before it was computed");
    if (!has_slot(walk, wire)) return BLOCKED;
    wire->stage_microbatch[wire->sent++] = to * walk->schedule->microbatches + action->microbatch;
    return SL_OK;
}

static int take_message(struct walk *walk, int rank, const struct sl_action *action, bool *received) {
    struct wire *wire = wire_of(walk, rank, action);
    const int stage = sl_schedule_stage(walk->schedule, rank, action->loop);
    if (wire->taken == wire->sent) return BLOCKED;
    if (wire->stage_microbatch[wire->taken] != stage * walk->schedule->microbatches + action->microbatch)
        return broken(walk, rank, action, "the peer sends another one first");
    wire->taken++;
    wire->released += action->update >= 0; /* copied into its row */
    *received = true;
    return SL_OK;
}

static int forward(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = sl_schedule_stage(walk->schedule, rank, action->loop);
    int *held = &walk->held[rank * walk->schedule->loops + action->loop];
    int *most = &walk->most[rank * walk->schedule->loops + action->loop];
    if (cell->forward) return broken(walk, rank, action, "it was done before");
    if (stage > 0 && !cell->received) return broken(walk, rank, action, "its input has not been taken");
    if (action->output < 0 && !has_slot(walk, &walk->wire[rank])) return BLOCKED;
    if (action->input < 0) walk->wire[sl_schedule_previous(walk->schedule, rank)].released++;
    cell->forward = true;
    if (++*held > *most) *most = *held;
    return SL_OK;
}

static int backward(struct walk *walk, int rank, const struct sl_action *action, struct cell *cell) {
    const int stage = sl_schedule_stage(walk->schedule, rank, action->loop);
    const int ranks = walk->schedule->ranks;
    const bool last_stage = stage == ranks * walk->schedule->loops - 1;
    if (sl_has_input_gradient(action->kind)) {
        if (cell->input_gradient) return broken(walk, rank, action, "it was done before");
        if (!cell->forward) return broken(walk, rank, action, "its forward comes later");
        if (!last_stage && !cell->gradient_received)
            return broken(walk, rank, action, "its gradient has not been taken");
        if (action->input < 0 && !has_slot(walk, &walk->wire[ranks + rank])) return BLOCKED;
        if (!last_stage) walk->wire[ranks + sl_schedule_next(walk->schedule, rank)].released++;
        cell->input_gradient = true;
    }
    if (sl_has_weight_gradient(action->kind)) {
        if (cell->weight_gradient) return broken(walk, rank, action, "it was done before");
        if (!cell->input_gradient) return broken(walk, rank, action, "its input gradient comes later");
        cell->weight_gradient = true;
        walk->held[rank * walk->schedule->loops + action->loop]--;
    }
    return SL_OK;
}

static int reduce(struct walk *walk, int rank, const struct sl_action *action) {
    if (walk->reductions[rank * walk->schedule->loops + action->loop]++)
        return broken(walk, rank, action, "it was done before");
    for (int i = 0; i < walk->schedule->microbatches; i++) {
        if (!cell_of(walk, sl_schedule_stage(walk->schedule, rank, action->loop), i)->weight_gradient)
            return broken(walk, rank, action, "a weight gradient of its loop comes later");
    }
    return SL_OK;
}

/* The columns by which the executor finds its rows, stages and peers. */
static const char *wrong_column(const struct walk *walk, int rank, const struct sl_action *action) {
    const struct sl_schedule *schedule = walk->schedule;
    const int ranks = schedule->ranks, next = sl_schedule_next(walk->schedule, rank),
              previous = sl_schedule_previous(walk->schedule, rank);
    const bool kept = rank == 0, last_stage = rank == ranks - 1 && action->loop == schedule->loops - 1;
    const int row = action->microbatch;
    if (action->params != action->loop) return "its params are another loop's";
    switch (action->kind) {
    case SL_SEND_ACTIVATION:
        return action->peer != next ? "its peer is not the next rank" : NULL;
    case SL_TAKE_GRADIENT:
        return action->peer != next ? "its peer is not the next rank" : NULL;
    case SL_TAKE_ACTIVATION:
    case SL_SEND_GRADIENT:
        if (action->peer != previous) return "its peer is not the previous rank";
        return action->update != (kept ? row : -1) ? "its update is not its row of the stage-input buffer" : NULL;
    case SL_REDUCE:
        return NULL;
    default:
        if (action->input != (kept ? row : -1)) return "its input is not its row of the stage-input buffer";
        return action->output != (last_stage ? row : -1) ? "its output is not its row of the output buffer" : NULL;
    }
}

static int step(struct walk *walk, int rank, const struct sl_action *action) {
    if ((int)action->kind < 0 || action->kind >= SL_ACTION_KINDS)
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d has an action of unknown kind %d",
                            walk->schedule->name, rank, (int)action->kind);
    if (action->loop < 0 || action->loop >= walk->schedule->loops || action->microbatch < 0 ||
        action->microbatch >= walk->schedule->microbatches)
        return broken(walk, rank, action, "there is no such loop or microbatch");
    const char *wrong = wrong_column(walk, rank, action);
    if (wrong) return broken(walk, rank, action, wrong);
    struct cell *cell = cell_of(walk, sl_schedule_stage(walk->schedule, rank, action->loop), action->microbatch);
    switch (action->kind) {
    case SL_FORWARD:
        return forward(walk, rank, action, cell);
    case SL_SEND_ACTIVATION:
        return send_message(walk, rank, action, cell->forward);
    case SL_SEND_GRADIENT:
        return send_message(walk, rank, action, cell->input_gradient);
    case SL_TAKE_ACTIVATION:
        return take_message(walk, rank, action, &cell->received);
    case SL_TAKE_GRADIENT:
        return take_message(walk, rank, action, &cell->gradient_received);
    case SL_REDUCE:
        return reduce(walk, rank, action);
    default:
        return backward(walk, rank, action, cell);
    }
}

/* What must hold once no rank can move any more. */
static int check_end(const struct walk *walk) {
    const struct sl_schedule *schedule = walk->schedule;
    const int stages = schedule->ranks * schedule->loops;
    for (int r = 0; r < schedule->ranks; r++) {
        if (walk->next[r] < schedule->rank[r].count)
            return broken(walk, r, &schedule->rank[r].action[walk->next[r]], "deadlock: it waits for ever");
    }
    for (int c = 0; c < stages * schedule->microbatches; c++) {
        if (walk->cell[c].forward && walk->cell[c].weight_gradient) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: microbatch %d has no %s in stage %d",
                            schedule->name, c % schedule->microbatches,
                            walk->cell[c].forward ? "weight gradient" : "forward", c / schedule->microbatches);
    }
    for (int w = 0; w < 2 * schedule->ranks; w++) {
        if (walk->wire[w].sent == walk->wire[w].taken) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d sends %s that is never taken",
                            schedule->name, w % schedule->ranks, w < schedule->ranks ? "an activation" : "a gradient");
    }
    for (int i = 0; i < stages; i++) {
        if (walk->reductions[i] == 1) continue;
        return sl_error_set(walk->error, SL_BAD_INPUT, "schedule %s: rank %d has no reduction of loop %d",
                            schedule->name, i / schedule->loops, i % schedule->loops);
    }
    return SL_OK;
}

static int walk_to_the_end(struct walk *walk) {
    const struct sl_schedule *schedule = walk->schedule;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < schedule->ranks; r++) {
            while (walk->next[r] < schedule->rank[r].count) {
                const int status = step(walk, r, &schedule->rank[r].action[walk->next[r]]);
                if (status == BLOCKED) break;
                if (status) return status;
                walk->next[r]++;
                moved = true;
            }
        }
    }
    return check_end(walk);
}

static bool take_memory(struct walk *walk) {
    const size_t ranks = (size_t)walk->schedule->ranks, loops = (size_t)walk->schedule->loops;
    const size_t cells = ranks * loops * (size_t)walk->schedule->microbatches;
    walk->next = calloc(ranks, sizeof *walk->next);
    walk->cell = calloc(cells, sizeof *walk->cell);
    walk->wire = calloc(2 * ranks, sizeof *walk->wire);
    walk->held = calloc(3 * ranks * loops, sizeof *walk->held);
    if (!walk->next || !walk->cell || !walk->wire || !walk->held) return false;
    walk->most = walk->held + ranks * loops;
    walk->reductions = walk->most + ranks * loops;
    for (size_t w = 0; w < 2 * ranks; w++) {
        size_t sends = 0;
        const struct sl_rank_schedule *rank = &walk->schedule->rank[w % ranks];
        for (int i = 0; i < rank->count; i++) {
            sends += rank->action[i].kind == (w < ranks ? SL_SEND_ACTIVATION : SL_SEND_GRADIENT);
        }
        walk->wire[w].stage_microbatch = calloc(sends + 1, sizeof(int));
        if (!walk->wire[w].stage_microbatch) return false;
    }
    return true;
}

static void give_memory(struct walk *walk) {
    for (int w = 0; walk->wire && w < 2 * walk->schedule->ranks; w++) free(walk->wire[w].stage_microbatch);
    free(walk->next);
    free(walk->cell);
    free(walk->wire);
    free(walk->held);
}

int sl_schedule_check(const struct sl_schedule *schedule, int slots, int *stash, struct sl_error *error) {
    struct walk walk = {.schedule = schedule, .slots = slots, .error = error};
    int status = take_memory(&walk)
                     ? walk_to_the_end(&walk)
                     : sl_error_set(error, SL_FAILED, "schedule %s: no memory to check it", schedule->name);
    if (status == SL_OK && stash) {
        *stash = 0;
        for (int i = 0; i < schedule->ranks * schedule->loops; i++) {
            if (walk.most[i] > *stash) *stash = walk.most[i];
        }
    }
    give_memory(&walk);
    return status;
}
