/* cores.c - simulates ranks that share cores: at any time all that have work get equal shares of the cores, and none
 * more than a whole one (processor sharing). */
#include <math.h>
#include <stdlib.h>

#include "spmd/base/memory.h"
#include "spmd/schedule/simulate_internal.h"

enum { NONE = -1 };

static void list(const struct piece *piece) {
    if (piece->listed) *piece->listed = piece->event;
}

/* QUEUED has come to the front: from now on it needs a core. */
static void put_first(struct walk *walk, int rank, int queued) {
    struct cores *cores = walk->cores;
    cores->first[rank] = queued;
    if (queued == NONE) return;
    struct sl_event *event = &cores->queued[queued].piece.event;
    cores->left[rank] = cores->whole[rank] = event->end - event->begin;
    event->begin = walk->now[rank];
}

/* A place for one more; NONE without memory. */
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

/* The first piece of RANK has been computed. */
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

/* Whether RANK has work that it could do now; it may begin later, when what it waits for has come. */
static bool is_active(const struct walk *walk, int rank) {
    return sl_cores_busy(walk, rank) && walk->now[rank] <= walk->cores->time;
}

/* Walks on until the rank computes, or waits. Returns whether it came any further. */
static bool advance(struct walk *walk, int rank) {
    struct cores *cores = walk->cores;
    const struct sl_rank_schedule *actions = &walk->schedule->rank[rank];
    bool moved = false;
    while (!sl_cores_busy(walk, rank) && walk->now[rank] <= cores->time) {
        if (walk->next[rank] < actions->count) {
            if (!sl_walk_step(walk, rank, &actions->action[walk->next[rank]]))
                return moved || sl_cores_busy(walk, rank);
            walk->next[rank]++;
        } else {
            if (!cores->ended[rank]) walk->result->rank[rank].end = walk->now[rank];
            cores->ended[rank] = true;
            if (!sl_walk_update(walk, rank)) return moved;
        }
        moved = true;
    }
    return moved;
}

/* Until nobody can go on without time. */
static void advance_all(struct walk *walk) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int r = 0; r < walk->schedule->ranks; r++) moved = advance(walk, r) || moved;
    }
}

/* The time at which the first rank ends a piece of work, or goes on; infinite: all have ended. RATE is what each has of
 * a core. */
static double next_time(const struct walk *walk, double rate) {
    const struct cores *cores = walk->cores;
    double next = INFINITY;
    for (int r = 0; r < walk->schedule->ranks; r++) {
        const double end = cores->time + cores->left[r] / rate;
        if (is_active(walk, r))
            next = end < next ? end : next;
        else if (walk->now[r] > cores->time)
            next = walk->now[r] < next ? walk->now[r] : next;
    }
    return next;
}

static void work_until(struct walk *walk, double time, double rate) {
    struct cores *cores = walk->cores;
    const double done = (time - cores->time) * rate;
    for (int r = 0; r < walk->schedule->ranks; r++)
        if (is_active(walk, r))
            cores->left[r] = cores->time + cores->left[r] / rate <= time ? 0 : cores->left[r] - done;
    for (int r = 0; r < walk->schedule->ranks; r++) {
        if (!is_active(walk, r) || cores->left[r] > 0) continue;
        const double before = cores->time;
        cores->time = time;
        finish(walk, r);
        cores->time = before;
    }
    cores->time = time;
}

static double rate_now(const struct walk *walk) {
    int active = 0;
    for (int r = 0; r < walk->schedule->ranks; r++) active += is_active(walk, r);
    return active > walk->cores->each ? walk->cores->each / active : 1;
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
    cores->left = calloc(ranks, sizeof *cores->left);
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
    free(cores->left);
    free(cores->whole);
    free(cores->after);
    free(cores->ended);
    free(cores);
    walk->cores = NULL;
}

int sl_cores_walk(struct walk *walk, struct sl_error *error) {
    struct cores *cores = walk->cores = open_cores(walk);
    bool taken = cores && cores->first && cores->last && cores->left && cores->whole && cores->after && cores->ended;
    sl_turns_begin(&walk->turns, walk->schedule->ranks); /* nobody takes them here */
    while (taken) {
        advance_all(walk);
        if (cores->no_memory) break;
        const double rate = rate_now(walk), next = next_time(walk, rate);
        if (isinf(next)) return SL_OK;
        work_until(walk, next, rate);
    }
    return sl_error_set(error, SL_FAILED, "schedule %s: no memory to simulate it", walk->schedule->name);
}
