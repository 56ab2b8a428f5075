/* periodic.c - sketches that repeat: every microbatch repeats the actions of the one before it, one period later.
 *
 * The actions of one microbatch are placed one after the other, each in the first long enough gap of its rank's period,
 * or in a later gap. The resulting order of all microbatches' actions is the sketch; its actions run as early as they
 * can. The time a microbatch stays on a rank determines the bytes it saves, so such sketches are good if there is
 * little room (Qi et al. 2024, building blocks). The search varies the gaps to skip and the period. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/synthesis/sketch.h"

enum { MOST_SKIPS = 4 };

/* Variables of the search: the period as a multiple of the shortest, and the number of gaps each action skips. */
struct block {
    double stretch;
    int *skip; /* [stages][SL_SKETCH_KINDS] */
};

struct periodic {
    const struct sl_layout *layout;
    struct sl_sketch_walk *walk;
    struct sl_sketch sketch;
    double shortest, period;
    double *begin; /* [stages][SL_SKETCH_KINDS] begin for microbatch 0; NAN: not placed yet */
};

/* Whether an action of STAGE and KIND can begin at TIME in every period; otherwise *NEXT is the next time to try. */
static bool is_free(const struct periodic *periodic, int stage, int kind, double time, double *next) {
    const struct sl_layout *layout = periodic->layout;
    const int rank = sl_schedule_rank_of(&layout->table, stage);
    const double period = periodic->period, slack = 1e-9 * period, cost = sl_layout_cost(layout, stage, kind);
    for (int l = 0; l < layout->table.loops; l++) {
        for (int k = 0; k < SL_SKETCH_KINDS; k++) {
            const int other = sl_schedule_stage(&layout->table, rank, l);
            const double begin = periodic->begin[other * SL_SKETCH_KINDS + k], taken = sl_layout_cost(layout, other, k);
            if (isnan(begin)) continue;
            double after = fmod(time - begin, period); /* time since the other action began */
            if (after < -slack) after += period;
            if (after > period - slack) after = 0;
            *next = time + taken - after;
            if (after < taken - slack) return false;
            *next += period;
            if (after + cost > period + slack) return false; /* the other one begins again before it ends */
        }
    }
    return true;
}

/* Places an action at EARLIEST or later, after SKIPS gaps. False: there is no gap. */
static bool place(const struct periodic *periodic, int stage, int kind, double earliest, int skips) {
    const double last = earliest + (1 + skips) * periodic->period;
    double next;
    for (double time = earliest; time <= last;) {
        if (!is_free(periodic, stage, kind, time, &next)) {
            time = fmax(next, time + 1e-6 * periodic->period);
        } else if (skips-- > 0) {
            time += fmax(sl_layout_cost(periodic->layout, stage, kind), 1e-6 * periodic->period);
        } else {
            periodic->begin[stage * SL_SKETCH_KINDS + kind] = time;
            return true;
        }
    }
    return false;
}

static double end_of(const struct periodic *periodic, int stage, int kind) {
    return periodic->begin[stage * SL_SKETCH_KINDS + kind] + sl_layout_cost(periodic->layout, stage, kind);
}

static bool place_all(struct periodic *periodic, const struct block *block) {
    const struct sl_layout *layout = periodic->layout;
    const int stages = sl_schedule_stages(&layout->table);
    for (int c = 0; c < stages * SL_SKETCH_KINDS; c++) periodic->begin[c] = NAN;
    for (int n = 0; n < 3 * stages; n++) {
        const int kind = n / stages, stage = kind == SL_SKETCH_I ? stages - 1 - n % stages : n % stages;
        const int source = sl_layout_source(layout, stage, kind);
        double ready = 0;
        if (source >= 0)
            ready = end_of(periodic, source, kind) + sl_layout_travel(layout, source, stage);
        else if (kind != SL_SKETCH_F)
            ready = end_of(periodic, stage, kind - 1);
        if (!place(periodic, stage, kind, ready, block->skip[stage * SL_SKETCH_KINDS + kind])) return false;
    }
    return true;
}

/* Writes the order of all microbatches' actions on RANK to CODE. */
static void merge(const struct periodic *periodic, int rank, uint16_t *code) {
    const struct sl_layout *layout = periodic->layout;
    const int codes = SL_SKETCH_KINDS * layout->table.loops, actions = sl_layout_actions(layout);
    int done[SL_SKETCH_KINDS * SL_SKETCH_LOOPS] = {0};
    for (int i = 0; i < actions; i++) {
        double first = INFINITY;
        for (int c = 0; c < codes; c++) {
            const int stage = sl_schedule_stage(&layout->table, rank, c / SL_SKETCH_KINDS);
            if (done[c] == layout->table.microbatches) continue;
            const double time =
                periodic->begin[stage * SL_SKETCH_KINDS + c % SL_SKETCH_KINDS] + done[c] * periodic->period;
            if (time >= first) continue;
            first = time;
            code[i] = (uint16_t)c;
        }
        done[code[i]]++;
    }
}

/* The excess of the ranks' saved bytes in the long run over their room, as a multiple of it, plus a little for all
 * bytes. */
static double demand(const struct periodic *periodic) {
    const struct sl_layout *layout = periodic->layout;
    double excess = 0;
    for (int r = 0; r < layout->table.ranks; r++) {
        double sum = 0;
        for (int l = 0; l < layout->table.loops; l++) {
            const int stage = sl_schedule_stage(&layout->table, r, l);
            sum += layout->kept[stage] *
                   (end_of(periodic, stage, SL_SKETCH_W) - periodic->begin[stage * SL_SKETCH_KINDS + SL_SKETCH_F]);
        }
        sum /= periodic->period * layout->memory;
        excess += fmax(0, sum - 1) + 0.01 * sum;
    }
    return excess;
}

/* The badness of BLOCK's sketch: its span; if it does not fit, more than any span. */
static double try_block(struct periodic *periodic, const struct block *block) {
    const double too_much = 1e3 * periodic->shortest * (periodic->layout->table.microbatches + 1);
    periodic->period = periodic->shortest * block->stretch;
    periodic->sketch.span = INFINITY;
    if (!place_all(periodic, block)) return INFINITY;
    for (int r = 0; r < periodic->layout->table.ranks; r++) {
        uint16_t *code = &periodic->sketch.code[r * sl_layout_actions(periodic->layout)];
        merge(periodic, r, code);
        if (!sl_sketch_fits(periodic->layout, r, code)) return too_much * (1 + demand(periodic));
    }
    sl_sketch_time(&periodic->sketch, periodic->layout, periodic->walk);
    return periodic->sketch.span;
}

static void draw(struct block *block, int actions, struct sl_dice *dice) {
    block->stretch = 1 + (sl_dice_below(dice, 2) ? 0.3 * sl_dice_share(dice) : 0);
    for (int i = 0; i < actions; i++) block->skip[i] = sl_dice_below(dice, 6) ? 0 : sl_dice_below(dice, MOST_SKIPS);
}

static void mutate(struct block *block, int actions, struct sl_dice *dice) {
    if (!sl_dice_below(dice, 6)) block->stretch = fmax(1, block->stretch + 0.1 * (sl_dice_share(dice) - 0.6));
    for (int n = 1 + sl_dice_below(dice, 3); n > 0; n--)
        block->skip[sl_dice_below(dice, actions)] = sl_dice_below(dice, 2) ? 0 : sl_dice_below(dice, MOST_SKIPS);
}

/* Searches as climb does in list.c. */
static void climb(struct periodic *periodic, struct block *best_block, struct block *tried, struct sl_sketch *best,
                  struct sl_search *search, int iterations) {
    enum { PATIENCE = 600 };
    const int actions = sl_schedule_stages(&periodic->layout->table) * SL_SKETCH_KINDS;
    double value = INFINITY;
    for (int i = 0, vain = 0; i < iterations && !sl_search_over(search, best, i); i++, vain++) {
        const bool anew = value == INFINITY || vain > PATIENCE;
        memcpy(tried->skip, best_block->skip, (size_t)actions * sizeof *tried->skip);
        tried->stretch = best_block->stretch;
        if (anew)
            draw(tried, actions, &search->dice);
        else
            mutate(tried, actions, &search->dice);
        const double now = try_block(periodic, tried);
        if (now < value || anew) vain = 0;
        if (now <= value || anew) {
            value = now;
            memcpy(best_block->skip, tried->skip, (size_t)actions * sizeof *tried->skip);
            best_block->stretch = tried->stretch;
        }
        if (periodic->sketch.span < best->span) sl_sketch_copy(best, &periodic->sketch, periodic->layout);
    }
}

/* The work of the rank with the most work. */
static double shortest_period(const struct sl_layout *layout) {
    double most = 0;
    for (int r = 0; r < layout->table.ranks; r++) {
        double sum = 0;
        for (int l = 0; l < layout->table.loops; l++)
            for (int kind = 0; kind < SL_SKETCH_KINDS; kind++)
                sum += sl_layout_cost(layout, sl_schedule_stage(&layout->table, r, l), kind);
        most = fmax(most, sum);
    }
    return most;
}

bool sl_sketch_repeat(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                      struct sl_sketch_walk *walk) {
    const size_t actions = (size_t)sl_schedule_stages(&layout->table) * SL_SKETCH_KINDS;
    struct periodic periodic = {.layout = layout,
                                .walk = walk,
                                .shortest = shortest_period(layout),
                                .begin = calloc(actions, sizeof *periodic.begin)};
    int *skip = calloc(2 * actions, sizeof *skip);
    const bool taken = sl_sketch_open(&periodic.sketch, layout) && periodic.begin && skip;
    struct block block = {1, skip}, tried = {1, skip + actions};
    if (taken && periodic.shortest > 0 && !sl_layout_shares_lines(layout))
        climb(&periodic, &block, &tried, best, search, iterations);
    sl_sketch_free(&periodic.sketch);
    free(periodic.begin);
    free(skip);
    return taken;
}
