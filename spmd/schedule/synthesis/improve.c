/* improve.c - makes a sketch shorter by moving actions of its longest chain.
 *
 * The longest chain of dependent actions is as long as the sketch. Parts of it lie on one rank: a sketch can only
 * become shorter if an action of such a part moves before the part's first action or behind its last one, or the order
 * within the part changes. So a step moves one action of the chain within its rank. A step to a slightly longer sketch
 * is accepted with a probability that falls with time (simulated annealing; Van Laarhoven, Aarts and Lenstra 1992). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/synthesis/sketch.h"

struct arc {
    int rank, place; /* the action follows the one before it without a wait */
};

struct improving {
    const struct sl_layout *layout;
    struct sl_sketch_walk *walk;
    struct sl_sketch sketch, tried;
    struct arc *arc; /* [ranks * actions] of the longest chain */
    int arcs;
};

/* Lists the chain from its end on. */
static void find_arcs(struct improving *improving) {
    const struct sl_layout *layout = improving->layout;
    const struct sl_sketch_walk *walk = improving->walk;
    const int actions = sl_layout_actions(layout), microbatches = layout->table.microbatches;
    int rank = 0, place = actions - 1;
    improving->arcs = 0;
    for (int r = 1; r < layout->table.ranks; r++)
        if (walk->now[r] > walk->now[rank]) rank = r;
    while (place >= 0) {
        const int at = rank * actions + place, code = improving->sketch.code[at];
        if (!walk->waited[at]) {
            if (place > 0) improving->arc[improving->arcs++] = (struct arc){rank, place};
            place--;
            continue;
        }
        const int kind = code % SL_SKETCH_KINDS,
                  stage = sl_schedule_stage(&layout->table, rank, code / SL_SKETCH_KINDS);
        const int source = sl_layout_source(layout, stage, kind);
        place = walk->place[(source * SL_SKETCH_KINDS + kind) * microbatches + walk->which[at]];
        rank = sl_schedule_rank_of(&layout->table, source);
    }
}

/* Whether messages on a line would change their order if RANK's action at FROM moved to TO. */
static bool overtakes(const struct sl_layout *layout, int rank, const uint16_t *code, int from, int to) {
    const int kind = code[from] % SL_SKETCH_KINDS, step = from < to ? 1 : -1, on = kind == SL_SKETCH_F ? 1 : -1;
    const int stage = sl_schedule_stage(&layout->table, rank, code[from] / SL_SKETCH_KINDS);
    if (kind == SL_SKETCH_W) return false;
    const int in = sl_layout_line(layout, stage, kind), out = sl_layout_line(layout, stage + on, kind);
    for (int i = from + step; i != to + step; i += step) {
        if (code[i] % SL_SKETCH_KINDS != kind || code[i] == code[from]) continue;
        const int other = sl_schedule_stage(&layout->table, rank, code[i] / SL_SKETCH_KINDS);
        if (in >= 0 && sl_layout_line(layout, other, kind) == in) return true;
        if (out >= 0 && sl_layout_line(layout, other + on, kind) == out) return true;
    }
    return false;
}

/* Moves the action at FROM of a list to TO. */
static void move(uint16_t *code, int from, int to) {
    const uint16_t moved = code[from];
    if (from < to)
        memmove(&code[from], &code[from + 1], (size_t)(to - from) * sizeof *code);
    else
        memmove(&code[to + 1], &code[to], (size_t)(from - to) * sizeof *code);
    code[to] = moved;
}

/* The distance of a move, mostly a short one. */
static int distance(struct sl_dice *dice, int most) {
    const int far = 1 + (sl_dice_below(dice, 4) ? sl_dice_below(dice, 4) : sl_dice_below(dice, 24));
    return far < most ? far : most;
}

/* Makes TRIED from SKETCH by a random move; false: the move is not possible. */
static bool try_one(struct improving *improving, struct sl_dice *dice) {
    const int actions = sl_layout_actions(improving->layout);
    const struct arc arc = improving->arc[sl_dice_below(dice, improving->arcs)];
    const bool back = sl_dice_below(dice, 2); /* the action moves back, or the one before it moves forward */
    const int from = back ? arc.place : arc.place - 1;
    const int to = back ? from - distance(dice, from) : from + distance(dice, actions - 1 - from);
    uint16_t *before = &improving->sketch.code[arc.rank * actions], *code = &improving->tried.code[arc.rank * actions];
    if (from == to || before[from] == before[to]) return false;
    if (overtakes(improving->layout, arc.rank, before, from, to)) return false;
    move(code, from, to);
    if (sl_sketch_fits(improving->layout, arc.rank, code)) {
        sl_sketch_time(&improving->tried, improving->layout, improving->walk);
        if (improving->tried.span < INFINITY) return true;
    }
    move(code, to, from);
    return false;
}

static void anneal(struct improving *improving, struct sl_sketch *best, struct sl_search *search, int iterations) {
    const struct sl_layout *layout = improving->layout;
    const int ranks = layout->table.ranks, actions = sl_layout_actions(layout);
    const double hot = 0.004 * best->span;
    const size_t bytes = (size_t)ranks * (size_t)actions * sizeof(uint16_t);
    sl_sketch_time(&improving->sketch, layout, improving->walk);
    find_arcs(improving);
    for (int i = 0; i < iterations && !sl_search_over(search, best, i); i++) {
        const double warmth = hot * (1 - (double)i / iterations);
        if (!improving->arcs) return;
        if (!try_one(improving, &search->dice)) continue;
        const double longer = improving->tried.span - improving->sketch.span;
        if (longer <= 0 || sl_dice_share(&search->dice) < exp(-longer / warmth)) {
            sl_sketch_copy(&improving->sketch, &improving->tried, layout);
            find_arcs(improving); /* the last walk was over this sketch */
            if (improving->sketch.span < best->span) sl_sketch_copy(best, &improving->sketch, layout);
        } else {
            memcpy(improving->tried.code, improving->sketch.code, bytes);
        }
    }
}

bool sl_sketch_improve(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                       struct sl_sketch_walk *walk) {
    const size_t actions = (size_t)layout->table.ranks * (size_t)sl_layout_actions(layout);
    struct improving improving = {.layout = layout, .walk = walk, .arc = calloc(actions, sizeof *improving.arc)};
    const bool opened = sl_sketch_open(&improving.sketch, layout);
    const bool taken = sl_sketch_open(&improving.tried, layout) && opened && improving.arc;
    if (taken && best->span < INFINITY) {
        sl_sketch_copy(&improving.sketch, best, layout);
        sl_sketch_copy(&improving.tried, best, layout);
        anneal(&improving, best, search, iterations);
    }
    sl_sketch_free(&improving.sketch);
    sl_sketch_free(&improving.tried);
    free(improving.arc);
    return taken;
}
