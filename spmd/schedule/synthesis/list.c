/* list.c - sketches by list scheduling: the rank able to begin first runs the action with the best value by the rules.
 *
 * An action's value is the time the rank would wait for it, plus a bias: a rank may wait for an action with a low bias
 * although one with a higher bias could begin now. Biases are in units of the mean action time, for each rank, stage
 * and kind. A rank without room accepts no further microbatch, and always reserves the room its later stages need for
 * one: otherwise the oldest microbatch might find none. The search tries biases. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/synthesis/sketch.h"

enum { NONE = -1 };

/* The rules of a sketch. */
struct rules {
    double *bias; /* [ranks][loops * SL_SKETCH_KINDS] */
    double *room; /* [ranks] bytes the rank uses */
};

/* The next action of a rank. */
struct choice {
    int code; /* or NONE */
    double begin;
};

struct list {
    const struct sl_layout *layout;
    const struct rules *rules;
    struct sl_sketch *sketch;
    struct sl_sketch_walk *walk;
    struct choice *choice; /* [ranks] */
    double *held;          /* [ranks] */
    double unit;           /* the mean time of an action */
    /* [SL_SKETCH_W][stages] lines of [loops * microbatches] stages: the order of messages on each line */
    int *queue, *sent, *taken;
};

/* The line on which STAGE receives the message for KIND. */
static size_t line_of(const struct list *list, int stage, int kind) {
    const struct sl_layout *layout = list->layout;
    return (size_t)(kind * sl_schedule_stages(&layout->table) + sl_layout_line(layout, stage, kind));
}

static size_t line_length(const struct list *list) {
    return (size_t)list->layout->table.loops * (size_t)list->layout->table.microbatches;
}

/* The time at which RANK could begin the next action of CODE; INFINITY: not known yet. */
static double can_begin(const struct list *list, int rank, int code) {
    const struct sl_layout *layout = list->layout;
    const struct sl_sketch_walk *walk = list->walk;
    const int kind = code % SL_SKETCH_KINDS, loop = code / SL_SKETCH_KINDS, microbatches = layout->table.microbatches;
    const int stage = sl_schedule_stage(&layout->table, rank, loop), cell = stage * SL_SKETCH_KINDS + kind;
    const int microbatch = walk->done[cell], source = sl_layout_source(layout, stage, kind);
    if (microbatch >= (kind == SL_SKETCH_F ? microbatches : walk->done[cell - 1])) return INFINITY;
    if (kind == SL_SKETCH_F) {
        double needed = list->held[rank];
        for (int l = loop; l < layout->table.loops; l++)
            needed += layout->kept[sl_schedule_stage(&layout->table, rank, l)];
        if (needed > list->rules->room[rank] * (1 + 1e-12)) return INFINITY;
    }
    if (source < 0) return walk->now[rank];
    const int from = source * SL_SKETCH_KINDS + kind;
    if (walk->done[from] <= microbatch) return INFINITY;
    const size_t line = line_of(list, stage, kind);
    if (list->queue[line * line_length(list) + (size_t)list->taken[line]] != stage) return INFINITY;
    return fmax(walk->now[rank], walk->end[from * microbatches + microbatch] + sl_layout_travel(layout, source, stage));
}

static void choose(struct list *list, int rank) {
    const int codes = SL_SKETCH_KINDS * list->layout->table.loops;
    const double *bias = &list->rules->bias[rank * codes];
    struct choice *choice = &list->choice[rank];
    double best = INFINITY;
    choice->code = NONE;
    for (int code = 0; code < codes; code++) {
        const double begin = can_begin(list, rank, code);
        const double value = begin - list->walk->now[rank] + list->unit * bias[code];
        if (value >= best) continue;
        best = value;
        *choice = (struct choice){code, begin};
    }
}

/* Runs RANK's chosen action. */
static void act(struct list *list, int rank) {
    const struct sl_layout *layout = list->layout;
    struct sl_sketch_walk *walk = list->walk;
    const struct choice choice = list->choice[rank];
    const int kind = choice.code % SL_SKETCH_KINDS;
    const int stage = sl_schedule_stage(&layout->table, rank, choice.code / SL_SKETCH_KINDS);
    const int cell = stage * SL_SKETCH_KINDS + kind, stages = sl_schedule_stages(&layout->table);
    const int to = kind == SL_SKETCH_F ? stage + 1 : kind == SL_SKETCH_I ? stage - 1 : -1;
    list->sketch->code[rank * sl_layout_actions(layout) + walk->next[rank]++] = (uint16_t)choice.code;
    walk->now[rank] = walk->end[cell * layout->table.microbatches + walk->done[cell]] =
        choice.begin + sl_layout_cost(layout, stage, kind);
    walk->done[cell]++;
    if (kind == SL_SKETCH_F) list->held[rank] += layout->kept[stage];
    if (kind == SL_SKETCH_W) list->held[rank] -= layout->kept[stage];
    if (kind != SL_SKETCH_W && sl_layout_source(layout, stage, kind) >= 0) list->taken[line_of(list, stage, kind)]++;
    if (to >= 0 && to < stages) {
        const int next = sl_schedule_rank_of(&layout->table, to);
        const size_t line = line_of(list, to, kind);
        list->queue[line * line_length(list) + (size_t)list->sent[line]++] = to;
        if (next != rank) choose(list, next);
    }
    choose(list, rank);
}

/* Builds one sketch by the rules. */
static void build(struct list *list) {
    const int ranks = list->layout->table.ranks, actions = sl_layout_actions(list->layout);
    memset(list->walk->next, 0, (size_t)ranks * sizeof *list->walk->next);
    memset(list->walk->now, 0, (size_t)ranks * sizeof *list->walk->now);
    memset(list->walk->done, 0,
           (size_t)ranks * (size_t)list->layout->table.loops * SL_SKETCH_KINDS * sizeof *list->walk->done);
    memset(list->held, 0, (size_t)ranks * sizeof *list->held);
    memset(list->sent, 0, 4 * (size_t)sl_schedule_stages(&list->layout->table) * sizeof *list->sent); /* with
                                                                                                         TAKEN */
    list->sketch->span = INFINITY;
    for (int r = 0; r < ranks; r++) choose(list, r);
    for (int n = 0; n < ranks * actions; n++) {
        int first = NONE;
        for (int r = 0; r < ranks; r++)
            if (list->choice[r].code != NONE && (first == NONE || list->choice[r].begin < list->choice[first].begin))
                first = r;
        if (first == NONE) return; /* stuck */
        act(list, first);
    }
    list->sketch->span = 0;
    for (int r = 0; r < ranks; r++) list->sketch->span = fmax(list->sketch->span, list->walk->now[r]);
}

/* ---- rules ---- */

/* Draws a rank's room: between the need of one microbatch and all memory. */
static double draw_room(const struct sl_layout *layout, struct sl_dice *dice, int rank) {
    const double least = sl_layout_share(layout, rank);
    const double most = fmin(layout->memory, layout->table.microbatches * least);
    return sl_dice_below(dice, 2) ? most : fmin(most, least * (1 + sl_dice_below(dice, 2 * layout->table.ranks + 1)));
}

static void draw(const struct rules *rules, const struct sl_layout *layout, struct sl_dice *dice) {
    const int loops = layout->table.loops, codes = SL_SKETCH_KINDS * loops, ranks = layout->table.ranks;
    const double forward = 2 * sl_dice_share(dice) - 1, weight = 3 * sl_dice_share(dice);
    const double deeper = 2 * sl_dice_share(dice) - 1, back = 2 * sl_dice_share(dice) - 1;
    const int falls = sl_dice_below(dice, 3);
    for (int r = 0; r < ranks; r++) {
        for (int l = 0; l < loops; l++) {
            double *bias = &rules->bias[r * codes + SL_SKETCH_KINDS * l];
            bias[SL_SKETCH_F] = forward + l * deeper;
            bias[SL_SKETCH_I] = l * back;
            bias[SL_SKETCH_W] = weight + 0.01 * l;
        }
        const double least = sl_layout_share(layout, r);
        const double most = fmin(layout->memory, layout->table.microbatches * least);
        rules->room[r] = falls ? fmin(most, least * (1 + falls * (ranks - 1 - r))) : most;
    }
}

/* Changes some rules. */
static void mutate(const struct rules *rules, const struct sl_layout *layout, struct sl_dice *dice) {
    const int codes = SL_SKETCH_KINDS * layout->table.loops, ranks = layout->table.ranks;
    for (int changes = 1 + sl_dice_below(dice, 3); changes > 0; changes--) {
        const int rank = sl_dice_below(dice, ranks), code = sl_dice_below(dice, codes);
        const double by = (sl_dice_share(dice) - sl_dice_share(dice)) * 1.5;
        switch (sl_dice_below(dice, 4)) {
        case 0:
            rules->room[rank] = draw_room(layout, dice, rank);
            break;
        case 1: /* on all ranks */
            for (int r = 0; r < ranks; r++) rules->bias[r * codes + code] += by;
            break;
        case 2: /* on this one and all later ones */
            for (int r = rank; r < ranks; r++) rules->bias[r * codes + code] += by;
            break;
        default:
            rules->bias[rank * codes + code] += by;
        }
    }
}

/* ---- the search ---- */

enum { HAS_BEST, HAS_TRIED, RULES };

static void copy_rules(const struct rules *to, const struct rules *from, const struct sl_layout *layout) {
    const size_t ranks = (size_t)layout->table.ranks, codes = SL_SKETCH_KINDS * (size_t)layout->table.loops;
    memcpy(to->bias, from->bias, ranks * codes * sizeof *to->bias);
    memcpy(to->room, from->room, ranks * sizeof *to->room);
}

/* Climbs from random rules, and restarts after PATIENCE steps without gain. */
static void climb(struct list *list, struct rules rules[RULES], struct sl_sketch *best, struct sl_search *search,
                  int iterations) {
    enum { PATIENCE = 400 };
    const struct sl_layout *layout = list->layout;
    double span = INFINITY;
    list->rules = &rules[HAS_TRIED];
    for (int i = 0, vain = 0; i < iterations && !sl_search_over(search, best, i); i++, vain++) {
        const bool anew = span == INFINITY || vain > PATIENCE;
        if (anew) {
            draw(&rules[HAS_TRIED], layout, &search->dice);
            span = INFINITY;
        } else {
            copy_rules(&rules[HAS_TRIED], &rules[HAS_BEST], layout);
            mutate(&rules[HAS_TRIED], layout, &search->dice);
        }
        build(list);
        if (list->sketch->span < span || anew) vain = 0;
        if (list->sketch->span <= span) copy_rules(&rules[HAS_BEST], &rules[HAS_TRIED], layout);
        span = fmin(span, list->sketch->span);
        if (list->sketch->span < best->span) sl_sketch_copy(best, list->sketch, layout);
    }
}

bool sl_sketch_list(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                    struct sl_sketch_walk *walk) {
    const size_t ranks = (size_t)layout->table.ranks, codes = SL_SKETCH_KINDS * (size_t)layout->table.loops;
    const size_t stages = ranks * (size_t)layout->table.loops;
    const size_t messages = 2 * stages * (size_t)layout->table.loops * (size_t)layout->table.microbatches;
    struct sl_sketch sketch;
    struct list list = {.layout = layout,
                        .sketch = &sketch,
                        .walk = walk,
                        .choice = calloc(ranks, sizeof *list.choice),
                        .held = calloc(ranks + RULES * ranks * (codes + 1), sizeof *list.held),
                        .queue = calloc(messages + 4 * stages, sizeof *list.queue)};
    const bool taken = sl_sketch_open(&sketch, layout) && list.choice && list.held && list.queue;
    if (taken) {
        struct rules rules[RULES];
        double *free_memory = list.held + ranks;
        for (int i = 0; i < RULES; i++, free_memory += ranks * (codes + 1))
            rules[i] = (struct rules){.bias = free_memory, .room = free_memory + ranks * codes};
        list.sent = list.queue + messages;
        list.taken = list.sent + 2 * stages;
        for (int s = 0; s < sl_schedule_stages(&layout->table); s++)
            for (int kind = 0; kind < SL_SKETCH_KINDS; kind++) list.unit += sl_layout_cost(layout, s, kind);
        list.unit /= SL_SKETCH_KINDS * sl_schedule_stages(&layout->table);
        climb(&list, rules, best, search, iterations);
    }
    sl_sketch_free(&sketch);
    free(list.choice);
    free(list.held);
    free(list.queue);
    return taken;
}
