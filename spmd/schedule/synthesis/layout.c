/* layout.c - the placement of stages on ranks, the lines of messages, and the ranks' shares. */
#include <math.h>
#include <stdlib.h>

#include "spmd/schedule/synthesis/sketch.h"

int sl_layout_open(struct sl_layout *layout, int ranks, int loops, int microbatches, enum sl_stage_placement placement,
                   struct sl_error *error) {
    const size_t stages = (size_t)ranks * (size_t)loops;
    SL_TRY(sl_schedule_open(&layout->table, "synthesized", ranks, loops, microbatches, error));
    sl_schedule_place_stages(&layout->table, placement);
    layout->cost = calloc(stages, sizeof *layout->cost);
    layout->kept = calloc(stages, sizeof *layout->kept);
    layout->line = calloc(SL_SKETCH_W * stages, sizeof *layout->line);
    if (!layout->cost || !layout->kept || !layout->line)
        return sl_error_set(error, SL_FAILED, "no memory to look for a schedule");
    sl_layout_find_lines(layout);
    return SL_OK;
}

void sl_layout_free(struct sl_layout *layout) {
    sl_schedule_free(&layout->table);
    free(layout->cost);
    free(layout->kept);
    free(layout->line);
    *layout = (struct sl_layout){0};
}

double sl_layout_share(const struct sl_layout *layout, int rank) {
    double share = 0;
    for (int l = 0; l < layout->table.loops; l++) share += layout->kept[sl_schedule_stage(&layout->table, rank, l)];
    return share;
}

bool sl_layout_fits(const struct sl_layout *layout) {
    for (int r = 0; r < layout->table.ranks; r++)
        if (sl_layout_share(layout, r) > layout->memory) return false;
    return true;
}

/* ---- lines ---- */

/* A line has the number of its first stage: STAGE itself, or a lower stage of the same rank. */
void sl_layout_find_lines(struct sl_layout *layout) {
    const struct sl_schedule *table = &layout->table;
    const int stages = sl_schedule_stages(table);
    for (int kind = 0; kind < SL_SKETCH_W; kind++) {
        for (int s = 0; s < stages; s++) {
            const int source = sl_layout_source(layout, s, kind), rank = sl_schedule_rank_of(table, s);
            int *line = &layout->line[kind * stages + s];
            *line = source < 0 ? -1 : s;
            for (int l = 0; source >= 0 && l < table->loops && *line == s; l++) {
                const int other = sl_schedule_stage(table, rank, l), from = sl_layout_source(layout, other, kind);
                if (other < s && from >= 0 && sl_schedule_rank_of(table, from) == sl_schedule_rank_of(table, source))
                    *line = other;
            }
        }
    }
}

bool sl_layout_shares_lines(const struct sl_layout *layout) {
    const int stages = sl_schedule_stages(&layout->table);
    for (int i = 0; i < SL_SKETCH_W * stages; i++)
        if (layout->line[i] >= 0 && layout->line[i] != i % stages) return true;
    return false;
}

/* ---- balance ---- */

static void write_stages(struct sl_schedule *table) {
    for (int s = 0; s < sl_schedule_stages(table); s++) table->stage[table->place[s]] = s;
}

/* Exchanges the ranks of two stages. Each rank's stages stay in ascending order. */
static void exchange(struct sl_schedule *table, int a, int b) {
    const int of[2] = {sl_schedule_rank_of(table, a), sl_schedule_rank_of(table, b)};
    const int place = table->place[a];
    table->place[a] = table->place[b];
    table->place[b] = place;
    write_stages(table);
    for (int i = 0; i < 2; i++) {
        int *stage = &table->stage[of[i] * table->loops];
        for (int l = 1; l < table->loops; l++) {
            for (int k = l; k > 0 && stage[k - 1] > stage[k]; k--) {
                const int moved = stage[k];
                stage[k] = stage[k - 1];
                stage[k - 1] = moved;
            }
        }
        for (int l = 0; l < table->loops; l++) table->place[stage[l]] = of[i] * table->loops + l;
    }
}

/* The bound, increased by a little for unequal work, to break ties: many ranks may be as slow as the slowest. */
static double badness(const struct sl_layout *layout) {
    const struct sl_schedule *table = &layout->table;
    double squares = 0, sum = 0;
    for (int r = 0; r < table->ranks; r++) {
        double work = 0;
        for (int l = 0; l < table->loops; l++)
            for (int kind = 0; kind < SL_SKETCH_KINDS; kind++)
                work += sl_layout_cost(layout, sl_schedule_stage(table, r, l), kind);
        squares += work * work;
        sum += work;
    }
    const double unequal = sum > 0 ? sqrt(squares * table->ranks) / sum - 1 : 0; /* 0: all ranks have equal
                                                                                    work */
    return sl_layout_bound(layout) * (1 + 0.01 * unequal);
}

enum { MOST_TRIES = 3000 };

bool sl_layout_balance(struct sl_layout *layout, struct sl_dice *dice) {
    const int stages = sl_schedule_stages(&layout->table), tries = 100000000 / (stages * stages);
    const double before = sl_layout_bound(layout);
    double least = sl_layout_fits(layout) ? badness(layout) : (double)INFINITY;
    for (int i = 0; i < tries && i < MOST_TRIES; i++) {
        const int a = sl_dice_below(dice, stages), b = sl_dice_below(dice, stages);
        if (sl_schedule_rank_of(&layout->table, a) == sl_schedule_rank_of(&layout->table, b)) continue;
        exchange(&layout->table, a, b);
        const double now = sl_layout_fits(layout) ? badness(layout) : (double)INFINITY;
        if (now <= least)
            least = now;
        else
            exchange(&layout->table, a, b);
    }
    sl_layout_find_lines(layout);
    return least < INFINITY && sl_layout_bound(layout) < before * (1 - 1e-9);
}
