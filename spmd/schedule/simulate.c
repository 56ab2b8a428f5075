/* simulate.c - walks a lowered table with a clock for each rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/simulate_internal.h"

static size_t cell_of(const struct walk *walk, int stage, int microbatch) {
    return (size_t)stage * (size_t)walk->schedule->microbatches + (size_t)microbatch;
}

static double cost_of(const struct sl_costs *costs, int kind, int stage) {
    const struct sl_stage_costs *of = &costs->stage[costs->count > 1 ? stage : 0];
    switch (kind) {
    case SL_EVENT_OPTIMIZER:
        return of->optimizer;
    case SL_FORWARD:
        return of->forward;
    case SL_BACKWARD:
        return of->input_gradient + of->weight_gradient;
    case SL_INPUT_GRADIENT:
        return of->input_gradient;
    case SL_WEIGHT_GRADIENT:
        return of->weight_gradient;
    case SL_REDUCE:
        return of->reduce;
    case SL_UNSHARD:
        return of->unshard;
    case SL_RESHARD:
    case SL_SEND_ACTIVATION:
    case SL_TAKE_ACTIVATION:
    case SL_SEND_GRADIENT:
    case SL_TAKE_GRADIENT:
    default:
        break;
    }
    return 0; /* messages have costs of their own */
}

/* ---- single actions ---- */

/* Makes a piece of work that begins now, at its rank's time. */
static struct piece piece_of(const struct walk *walk, int kind, int stage, int microbatch, int microbatches) {
    const int rank = sl_schedule_rank_of(walk->schedule, stage);
    const bool runs = kind == SL_FORWARD || kind == SL_BACKWARD || kind == SL_INPUT_GRADIENT;
    const double begin = walk->now[rank], cost = cost_of(walk->costs, kind, stage);
    const double once = runs ? walk->costs->shared : 0;
    return (struct piece){.event = {.kind = kind,
                                    .rank = rank,
                                    .stage = stage,
                                    .loop = sl_schedule_loop_of(walk->schedule, stage),
                                    .microbatch = microbatch,
                                    .microbatches = microbatches,
                                    .begin = begin,
                                    .end = begin + cost * (once + (1 - once) * microbatches)}};
}

/* Events are listed in the order in which they are added. */
static void list(struct walk *walk, struct piece *piece) {
    if (!walk->result->event) return;
    piece->listed = &walk->result->event[walk->result->count++];
    *piece->listed = piece->event;
}

/* Runs a piece of work now or, if ranks share cores, when the rank has a core. */
static void spend(struct walk *walk, struct piece piece) {
    list(walk, &piece);
    if (walk->cores)
        sl_cores_queue(walk, &piece);
    else
        walk->now[piece.event.rank] = piece.event.end;
}

static void compute(struct walk *walk, enum sl_action_kind kind, int stage, int microbatch, int microbatches) {
    struct piece piece = piece_of(walk, kind, stage, microbatch, microbatches);
    piece.event.end += walk->owed[piece.event.rank];
    walk->owed[piece.event.rank] = 0;
    walk->result->rank[piece.event.rank].busy += piece.event.end - piece.event.begin;
    spend(walk, piece);
}

/* Begins a gather; a rank's gathers run one after another, in parallel with its compute. */
static void gather(struct walk *walk, int rank, int stage) {
    const double cost = cost_of(walk->costs, SL_UNSHARD, stage);
    const double begin = larger(walk->now[rank], walk->gather_end[rank]);
    walk->gathered[stage] = walk->gather_end[rank] = begin + cost;
    if (cost == 0) return;
    struct piece piece = piece_of(walk, SL_UNSHARD, stage, 0, 1);
    piece.event.begin = begin;
    piece.event.end = begin + cost;
    list(walk, &piece);
}

static void drop(struct walk *walk, int stage) {
    struct piece piece = piece_of(walk, SL_RESHARD, stage, 0, 1);
    if (cost_of(walk->costs, SL_UNSHARD, stage) > 0) list(walk, &piece);
}

/* Waits for the gather before a forward or an input gradient. */
static void wait_for_gather(struct walk *walk, int rank, int stage) {
    const double wait = walk->gathered[stage] - walk->now[rank];
    if (wait <= 0) return;
    walk->result->rank[rank].gathering += wait;
    walk->now[rank] += wait;
}

/* Runs due groups of weight gradients. */
static void run_weight_gradients(struct walk *walk, int stage) {
    struct weights *weights = &walk->weights[stage];
    const int group = walk->costs->group, end = sl_schedule_end_microbatch(walk->schedule, stage);
    while (weights->ready < end && weights->due[weights->ready]) weights->ready++;
    for (; weights->next + group <= weights->ready; weights->next += group)
        compute(walk, SL_WEIGHT_GRADIENT, stage, weights->next, group);
}

/* Whether the next action after ACTION, a backward of RANK, sends its gradient. */
static bool is_sent(const struct walk *walk, int rank, const struct sl_action *action) {
    const struct sl_rank_schedule *actions = &walk->schedule->rank[rank];
    const struct sl_action *next = action + 1;
    return next < actions->action + actions->count && next->kind == SL_SEND_GRADIENT && next->loop == action->loop &&
           next->microbatch == action->microbatch;
}

/* As in the executor: if a backward's gradient is sent at once, its weight gradients wait until it has been sent. */
static void backward_in_groups(struct walk *walk, int rank, int stage, const struct sl_action *action) {
    const enum sl_action_kind kind = action->kind;
    const int run = sl_schedule_run(walk->schedule, kind), microbatch = action->microbatch;
    if (sl_has_input_gradient(kind)) compute(walk, SL_INPUT_GRADIENT, stage, microbatch, run);
    if (!sl_has_weight_gradient(kind)) return;
    for (int m = 0; m < run; m++) walk->weights[stage].due[microbatch + m] = true;
    if (!is_sent(walk, rank, action)) run_weight_gradients(walk, stage);
}

/* The probability that a rank sleeps in a wait of mean length WAIT. */
static double falls_asleep(const struct sl_costs *costs, double wait) {
    if (wait <= 0 || costs->spread <= 0) return wait > costs->awake;
    return 0.5 * erfc((costs->awake - wait) / (sqrt(2) * costs->spread * wait));
}

/* The probability that the receiver of RANK's message to stage TO waits for it and sleeps. */
static double sleeps(const struct walk *walk, int rank, const struct sl_action *action, int to) {
    const int peer = action->peer, at = walk->next[peer];
    const struct sl_rank_schedule *of = &walk->schedule->rank[peer];
    if (peer == rank || walk->cores || at >= of->count) return 0;
    const struct sl_action *next = &of->action[at];
    const bool takes = next->kind == (action->kind == SL_SEND_GRADIENT ? SL_TAKE_GRADIENT : SL_TAKE_ACTIVATION);
    const bool it =
        takes && next->microbatch == action->microbatch && sl_schedule_stage(walk->schedule, peer, next->loop) == to;
    return it ? falls_asleep(walk->costs, walk->now[rank] - walk->now[peer]) : 0;
}

static void send(struct walk *walk, int rank, const struct sl_action *action, int to) {
    const double travel = action->peer == rank ? 0 : walk->costs->communication;
    walk->arrival[cell_of(walk, to, action->microbatch)] = walk->now[rank] + travel;
    if (walk->costs->notify > 0) walk->now[rank] += walk->costs->notify * sleeps(walk, rank, action, to);
    sl_turns_wake(&walk->turns, action->peer);
}

/* The mean delay after a wait of length WAIT. The longer a rank sleeps, the colder its caches get. */
static double waking(const struct sl_costs *costs, double wait) {
    const double often = costs->cores ? 0 : falls_asleep(costs, wait);
    if (often == 0) return 0;
    if (costs->awake <= 0 || wait >= SL_LONG_WAIT * costs->awake) return often * costs->wake;
    const double longer = wait > costs->awake ? log(wait / costs->awake) / log(SL_LONG_WAIT) : 0;
    return often * (costs->nap + (costs->wake - costs->nap) * longer);
}

static bool take(struct walk *walk, int rank, const struct sl_action *action, double *arrival) {
    if (*arrival == NOT_SENT && walk->cores) walk->owed[rank] = walk->costs->turn;
    if (*arrival == NOT_SENT) return false;
    const double wait = *arrival - walk->now[rank];
    const double late = waking(walk->costs, wait);
    const double travel = action->peer == rank ? 0 : walk->costs->communication + late;
    if (wait > 0) {
        walk->result->rank[rank].transfer += wait + late < travel ? wait + late : travel;
        walk->now[rank] = *arrival + late;
    }
    *arrival = NOT_SENT;
    return true;
}

/* ---- reductions and the optimizer ---- */

/* Sets the times of a reduction for which its rank is ready at READY. A rank's reductions run one after another. */
static void place_reduction(const struct walk *walk, struct piece *reduction, double ready) {
    struct sl_event *event = &reduction->event;
    struct sl_simulated_rank *rank = &walk->result->rank[event->rank];
    event->begin = larger(ready, rank->reduced);
    event->end = event->begin + cost_of(walk->costs, SL_REDUCE, event->stage);
    rank->reduced = event->end;
    if (reduction->listed) *reduction->listed = *event;
}

/* Begins a reduction. Without overlap its times are set after all actions of the rank. */
static void begin_reduction(struct walk *walk, int rank, int stage, int microbatch) {
    struct updates *updates = &walk->updates[rank];
    struct piece *reduction = &updates->reduction[updates->count++];
    *reduction = piece_of(walk, SL_REDUCE, stage, microbatch, 1);
    list(walk, reduction);
    if (walk->costs->overlap) place_reduction(walk, reduction, reduction->event.begin);
}

/* Updates a loop; updates come in the order of reductions. */
static void update(struct walk *walk, int rank, const struct sl_event *reduction) {
    const double cost = cost_of(walk->costs, SL_EVENT_OPTIMIZER, reduction->stage);
    walk->now[rank] = larger(walk->now[rank], reduction->end);
    if (cost > 0) spend(walk, piece_of(walk, SL_EVENT_OPTIMIZER, reduction->stage, 0, 1));
    walk->result->rank[rank].optimizer += cost;
    walk->updates[rank].used++;
}

static struct piece *next_update(const struct walk *walk, int rank) {
    const struct updates *updates = &walk->updates[rank];
    return updates->used < updates->count ? &updates->reduction[updates->used] : NULL;
}

/* Runs due updates before an action. */
static void update_between(struct walk *walk, int rank) {
    const struct piece *next;
    while (walk->costs->overlap && (next = next_update(walk, rank)) && next->event.end > next->event.begin &&
           next->event.end <= walk->now[rank])
        update(walk, rank, &next->event);
}

static bool walk_update(struct walk *walk, int rank) {
    struct piece *reduction = next_update(walk, rank);
    if (!reduction) return false;
    if (!walk->costs->overlap) place_reduction(walk, reduction, walk->now[rank]);
    update(walk, rank, &reduction->event);
    return true;
}

static bool walk_step(struct walk *walk, int rank, const struct sl_action *action) {
    const int stage = sl_schedule_stage(walk->schedule, rank, action->loop);
    update_between(walk, rank);
    if (sl_cores_busy(walk, rank)) return false;
    switch (action->kind) {
    case SL_TAKE_ACTIVATION:
    case SL_TAKE_GRADIENT:
        return take(walk, rank, action, &walk->arrival[cell_of(walk, stage, action->microbatch)]);
    case SL_SEND_ACTIVATION:
        send(walk, rank, action, stage + 1);
        return true;
    case SL_SEND_GRADIENT:
        send(walk, rank, action, stage - 1);
        if (walk->costs->group) run_weight_gradients(walk, stage);
        return true;
    case SL_REDUCE:
        if (walk->costs->group) run_weight_gradients(walk, stage);
        if (sl_cores_busy(walk, rank)) return false; /* it begins after the weight gradients */
        begin_reduction(walk, rank, stage, action->microbatch);
        return true;
    case SL_UNSHARD:
        gather(walk, rank, stage);
        return true;
    case SL_RESHARD:
        drop(walk, stage);
        return true;
    case SL_FORWARD:
        wait_for_gather(walk, rank, stage);
        compute(walk, action->kind, stage, action->microbatch, sl_schedule_run(walk->schedule, action->kind));
        return true;
    case SL_BACKWARD:
    case SL_INPUT_GRADIENT:
    case SL_WEIGHT_GRADIENT:
        if (sl_has_input_gradient(action->kind)) wait_for_gather(walk, rank, stage);
        if (walk->costs->group)
            backward_in_groups(walk, rank, stage, action);
        else
            compute(walk, action->kind, stage, action->microbatch, sl_schedule_run(walk->schedule, action->kind));
        return true;
    case SL_ACTION_KINDS:
        break;
    }
    return true;
}

static void walk_to_the_end(struct walk *walk) {
    int r;
    sl_turns_begin(&walk->turns, walk->schedule->ranks);
    while ((r = sl_turns_next(&walk->turns)) >= 0) {
        const struct sl_rank_schedule *rank = &walk->schedule->rank[r];
        while (walk->next[r] < rank->count && walk_step(walk, r, &rank->action[walk->next[r]])) walk->next[r]++;
    }
}

/* ---- results ---- */

static void summarize(struct walk *walk) {
    struct sl_simulation *result = walk->result;
    double busy = 0;
    for (int r = 0; r < result->ranks; r++) {
        struct sl_simulated_rank *rank = &result->rank[r];
        const double between = walk->cores ? rank->optimizer - walk->cores->after[r] : rank->optimizer;
        if (!walk->cores) rank->end = walk->now[r];
        while (walk_update(walk, r)); /* with shared cores all updates are done already */
        rank->updated = walk->now[r];
        rank->reducing = larger(rank->updated, rank->reduced) - rank->end - (rank->optimizer - between);
        busy += rank->busy + rank->starved;
        result->span = larger(result->span, rank->end);
        result->step = larger(result->step, larger(rank->updated, rank->reduced));
    }
    if (result->span <= 0) return;
    for (int r = 0; r < result->ranks; r++)
        result->rank[r].bubble =
            larger(0, (result->span - result->rank[r].busy - result->rank[r].starved) / result->span);
    const double total = result->ranks * result->span;
    result->bubble = larger(0, (total - busy) / total);
}

/* ---- the whole walk ---- */

static int check_costs(const struct sl_schedule *schedule, const struct sl_costs *costs, struct sl_error *error) {
    static const char *const name[] = {"forward",   "input gradient", "weight gradient",
                                       "reduction", "optimizer",      "gathering"};
    const int stages = sl_schedule_stages(schedule);
    if (costs->count != 1 && costs->count != stages)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s has %d stages, but costs are given for %d",
                            schedule->name, stages, costs->count);
    for (int s = 0; s < costs->count; s++) {
        const struct sl_stage_costs *of = &costs->stage[s];
        const double value[] = {of->forward, of->input_gradient, of->weight_gradient,
                                of->reduce,  of->optimizer,      of->unshard};
        for (int i = 0; i < 6; i++) {
            if (value[i] >= 0 && value[i] <= SL_MAX_COST) continue;
            return sl_error_set(error, SL_BAD_INPUT, "the %s of stage %d costs %g: must be a number from 0 to %g",
                                name[i], s, value[i], SL_MAX_COST);
        }
    }
    if (!(costs->communication >= 0 && costs->communication <= SL_MAX_COST))
        return sl_error_set(error, SL_BAD_INPUT, "communication costs %g: must be a number from 0 to %g",
                            costs->communication, SL_MAX_COST);
    const double wait[] = {costs->awake, costs->wake, costs->nap, costs->notify, costs->turn, costs->spread};
    for (int i = 0; i < 6; i++)
        if (!(wait[i] >= 0 && wait[i] <= SL_MAX_COST))
            return sl_error_set(error, SL_BAD_INPUT, "waiting costs %g: must be a number from 0 to %g", wait[i],
                                SL_MAX_COST);
    if (costs->cores < 0 || costs->coordinates < 0 ||
        (costs->cores > 0 && costs->coordinates > 0 && costs->coordinates < schedule->ranks))
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d cores for %d coordinates: must be 0 or more, and coordinates at least the %d ranks",
                            costs->cores, costs->coordinates, schedule->ranks);
    return SL_OK;
}

/* Counts the most events: one per compute action, UNSHARD and RESHARD; if weight gradients run in groups, one more per
 * microbatch of a backward; two per reduction, with its update. */
static size_t count_events(const struct sl_schedule *schedule, bool groups) {
    size_t count = 0;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const enum sl_action_kind kind = schedule->rank[r].action[i].kind;
            count += kind <= SL_WEIGHT_GRADIENT;
            if (kind == SL_BACKWARD && groups) count += (size_t)sl_schedule_run(schedule, kind);
            if (kind == SL_REDUCE) count += 2;
            count += kind == SL_UNSHARD || kind == SL_RESHARD;
        }
    }
    return count;
}

static bool take_memory(struct walk *walk, bool events) {
    const struct sl_schedule *schedule = walk->schedule;
    const size_t ranks = (size_t)schedule->ranks, stages = (size_t)sl_schedule_stages(schedule);
    const size_t microbatches = (size_t)schedule->microbatches, cells = stages * microbatches;
    struct sl_simulation *result = walk->result;
    if (events) result->event = malloc(count_events(schedule, walk->costs->group) * sizeof *result->event);
    walk->next = calloc(ranks, sizeof *walk->next);
    walk->now = calloc(2 * ranks, sizeof *walk->now);
    walk->arrival = malloc(cells * sizeof *walk->arrival);
    walk->weights = calloc(stages, sizeof *walk->weights);
    if (walk->costs->group) walk->due = calloc(cells, sizeof *walk->due);
    walk->gathered = calloc(stages + ranks, sizeof *walk->gathered);
    walk->updates = calloc(ranks, sizeof *walk->updates);
    walk->reductions = calloc(stages, sizeof *walk->reductions);
    if ((events && !result->event) || !walk->next || !walk->now || !walk->arrival || !walk->weights ||
        (walk->costs->group && !walk->due) || !walk->gathered || !walk->updates || !walk->reductions)
        return false;
    walk->owed = walk->now + ranks;
    walk->gather_end = walk->gathered + stages;
    for (size_t i = 0; i < cells; i++) walk->arrival[i] = NOT_SENT;
    for (size_t r = 0; r < ranks; r++) walk->updates[r].reduction = &walk->reductions[r * (size_t)schedule->loops];
    for (size_t s = 0; walk->due && s < stages; s++) {
        const int first = sl_schedule_first_microbatch(schedule, (int)s);
        walk->weights[s] = (struct weights){.due = &walk->due[s * microbatches], .ready = first, .next = first};
    }
    return true;
}

static void give_memory(struct walk *walk) {
    free(walk->next);
    free(walk->now);
    free(walk->arrival);
    free(walk->weights);
    free(walk->due);
    free(walk->gathered);
    free(walk->updates);
    free(walk->reductions);
    sl_cores_close(walk);
}

/* Checks the table in channels with room for all messages: if this fails, no executor can run the table. */
static int prove(const struct walk *walk, struct sl_error *error) {
    const struct sl_schedule *schedule = walk->schedule;
    struct sl_simulated_rank *rank = walk->result->rank;
    int *stash = malloc((size_t)schedule->ranks * sizeof *stash);
    if (!stash) return sl_error_set(error, SL_FAILED, "schedule %s: no memory to simulate it", schedule->name);
    const int slots = schedule->loops * schedule->microbatches, group = walk->costs->group ? walk->costs->group : 1;
    const int status = sl_schedule_check(schedule, slots, group, stash, error);
    for (int r = 0; r < schedule->ranks && status == SL_OK; r++) rank[r].stash = stash[r];
    free(stash);
    return status;
}

/* The memory of the proof is freed before the walk allocates its own. */
static int walk_table(struct walk *walk, bool events, struct sl_error *error) {
    const struct sl_schedule *schedule = walk->schedule;
    walk->result->ranks = schedule->ranks;
    walk->result->rank = calloc((size_t)schedule->ranks, sizeof *walk->result->rank);
    if (walk->result->rank) SL_TRY(prove(walk, error));
    if (!walk->result->rank || !take_memory(walk, events))
        return sl_error_set(error, SL_FAILED, "schedule %s: no memory to simulate it", schedule->name);
    if (walk->costs->cores > 0) return sl_cores_walk(walk, &(struct steps){walk_step, walk_update}, error);
    walk_to_the_end(walk);
    return SL_OK;
}

static int simulate(const struct sl_schedule *lowered, const struct sl_costs *costs, bool events,
                    struct sl_simulation *result, struct sl_error *error) {
    *result = (struct sl_simulation){0};
    SL_TRY(check_costs(lowered, costs, error));
    struct walk walk = {.schedule = lowered, .costs = costs, .result = result};
    const int status = walk_table(&walk, events, error);
    if (status == SL_OK)
        summarize(&walk);
    else
        sl_simulation_free(result);
    give_memory(&walk);
    return status;
}

int sl_schedule_simulate(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                         struct sl_error *error) {
    return simulate(lowered, costs, true, result, error);
}

int sl_schedule_time(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                     struct sl_error *error) {
    return simulate(lowered, costs, false, result, error);
}

void sl_simulation_free(struct sl_simulation *simulation) {
    free(simulation->rank);
    free(simulation->event);
    *simulation = (struct sl_simulation){0};
}
