/* cores.c - simulates ranks with shared cores: at any time all ranks with work get equal shares of the cores, at most a
 * whole core each (processor sharing). */
#include <math.h>
#include <stdlib.h>

#include "spmd/base/memory.h"
#include "spmd/schedule/simulate_internal.h"

enum { NONE = -1 };

static void list(const struct piece *piece) {
    if (piece->listed) *piece->listed = piece->event;
}

/* Makes QUEUED the rank's first piece: from now on it needs a core. */
static void put_first(struct walk *walk, int rank, int queued) {
    struct cores *cores = walk->cores;
    cores->first[rank] = queued;
    if (queued == NONE) return;
    struct sl_event *event = &cores->queued[queued].piece.event;
    cores->whole[rank] = event->end - event->begin;
    event->begin = walk->now[rank];
}

/* Returns a free entry of the queue; NONE without memory. */
static int take_place(struct cores *cores) {
    const int place = cores->unused;
    if (place != NONE) {
        cores->unused = cores->queued[place].following;
        return place;
    }
    struct queued *grown = sl_grow(cores->queued, cores->count, &cores->capacity, 64, sizeof *grown);
    cores->no_memory = cores->no_memory || !grown;
    if (!grown) return NONE;
    cores->queued = grown;
    return cores->count++;
}

void sl_cores_queue(struct walk *walk, const struct piece *piece) {
    struct cores *cores = walk->cores;
    const struct sl_event *event = &piece->event;
    const int rank = event->rank, place = take_place(cores);
    if (place == NONE) return;
    cores->queued[place] = (struct queued){*piece, NONE};
    if (event->kind == SL_EVENT_OPTIMIZER && cores->ended[rank]) cores->after[rank] += event->end - event->begin;
    if (cores->first[rank] == NONE)
        put_first(walk, rank, place);
    else
        cores->queued[cores->last[rank]].following = place;
    cores->last[rank] = place;
}

/* Ends the first piece of RANK. */
static void finish(struct walk *walk, int rank) {
    struct cores *cores = walk->cores;
    const int place = cores->first[rank];
    struct queued *queued = &cores->queued[place];
    struct sl_event *event = &queued->piece.event;
    event->end = walk->now[rank] = cores->time;
    list(&queued->piece);
    if (event->kind != SL_EVENT_OPTIMIZER)
        walk->result->rank[rank].starved += event->end - event->begin - cores->whole[rank];
    put_first(walk, rank, queued->following);
    queued->following = cores->unused;
    cores->unused = place;
}

/* Puts RANK into the heap `later` if walk->now[rank] is after cores->time, or into `computing` if it has work. Other
 * ranks stay where they are. */
static void wait(struct walk *walk, int rank) {
    struct cores *cores = walk->cores;
    if (walk->now[rank] > cores->time)
        sl_heap_add(&cores->later, walk->now[rank], rank);
    else if (sl_cores_busy(walk, rank))
        sl_heap_add(&cores->computing, cores->work + cores->whole[rank], rank);
    else
        return; /* it waits for a message, or is finished */
    cores->waits[rank] = true;
}

/* Walks RANK's actions until the rank computes, or waits. */
static void advance(struct walk *walk, const struct steps *steps, int rank) {
    struct cores *cores = walk->cores;
    const struct sl_rank_schedule *actions = &walk->schedule->rank[rank];
    while (!sl_cores_busy(walk, rank) && walk->now[rank] <= cores->time) {
        if (walk->next[rank] < actions->count) {
            if (!steps->step(walk, rank, &actions->action[walk->next[rank]])) return;
            walk->next[rank]++;
        } else {
            if (!cores->ended[rank]) walk->result->rank[rank].end = walk->now[rank];
            cores->ended[rank] = true;
            if (!steps->update(walk, rank)) return;
        }
    }
}

/* Advances all ranks until time must pass. Events are listed in this order, from the first rank on. */
static void advance_all(struct walk *walk, const struct steps *steps) {
    int rank;
    walk->turns.at = -1;
    while ((rank = sl_turns_next(&walk->turns)) >= 0) {
        if (walk->cores->waits[rank]) continue;
        advance(walk, steps, rank);
        wait(walk, rank);
    }
}

static void go_on(struct walk *walk, int rank) {
    walk->cores->waits[rank] = false;
    if (sl_cores_busy(walk, rank))
        wait(walk, rank);
    else
        sl_turns_wake(&walk->turns, rank);
}

/* Moves on to the time at which the first rank ends a piece of work, or continues. False: all have ended. */
static bool pass_time(struct walk *walk) {
    struct cores *cores = walk->cores;
    struct sl_heap *computing = &cores->computing, *later = &cores->later;
    const double rate = computing->count > cores->each ? cores->each / computing->count : 1;
    double end = INFINITY, next = INFINITY;
    if (computing->count) end = cores->time + (computing->entry[0].time - cores->work) / rate;
    if (later->count) next = later->entry[0].time;
    if (isinf(end) && isinf(next)) return false;
    cores->work = end <= next ? computing->entry[0].time : cores->work + (next - cores->time) * rate;
    cores->time = end <= next ? end : next;
    while (computing->count && computing->entry[0].time <= cores->work) {
        const int rank = sl_heap_take(computing);
        finish(walk, rank);
        go_on(walk, rank);
    }
    while (later->count && later->entry[0].time <= cores->time) go_on(walk, sl_heap_take(later));
    return true;
}

static struct cores *open_cores(const struct walk *walk) {
    const struct sl_costs *costs = walk->costs;
    const size_t ranks = (size_t)walk->schedule->ranks;
    struct cores *cores = calloc(1, sizeof *cores);
    if (!cores) return NULL;
    cores->each = costs->coordinates ? (double)costs->cores * walk->schedule->ranks / costs->coordinates : costs->cores;
    cores->first = malloc(ranks * sizeof *cores->first);
    cores->last = calloc(ranks, sizeof *cores->last);
    cores->unused = NONE;
    cores->computing.entry = malloc(ranks * sizeof *cores->computing.entry);
    cores->later.entry = malloc(ranks * sizeof *cores->later.entry);
    cores->waits = calloc(ranks, sizeof *cores->waits);
    cores->whole = calloc(ranks, sizeof *cores->whole);
    cores->after = calloc(ranks, sizeof *cores->after);
    cores->ended = calloc(ranks, sizeof *cores->ended);
    for (size_t r = 0; cores->first && r < ranks; r++) cores->first[r] = NONE;
    return cores;
}

void sl_cores_close(struct walk *walk) {
    struct cores *cores = walk->cores;
    if (!cores) return;
    free(cores->first);
    free(cores->last);
    free(cores->queued);
    free(cores->computing.entry);
    free(cores->later.entry);
    free(cores->waits);
    free(cores->whole);
    free(cores->after);
    free(cores->ended);
    free(cores);
    walk->cores = NULL;
}

static bool has_memory(const struct cores *cores) {
    return cores && cores->first && cores->last && cores->computing.entry && cores->later.entry && cores->waits &&
           cores->whole && cores->after && cores->ended;
}

int sl_cores_walk(struct walk *walk, const struct steps *steps, struct sl_error *error) {
    walk->cores = open_cores(walk);
    if (has_memory(walk->cores)) {
        sl_turns_begin(&walk->turns, walk->schedule->ranks);
        do advance_all(walk, steps);
        while (!walk->cores->no_memory && pass_time(walk));
        if (!walk->cores->no_memory) return SL_OK;
    }
    return sl_error_set(error, SL_FAILED, "schedule %s: no memory to simulate it", walk->schedule->name);
}
