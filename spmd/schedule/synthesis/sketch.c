/* sketch.c - sketches: memory, their times, and conversion from and to tables. */
#include "spmd/schedule/synthesis/sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double sl_search_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Steele, Lea and Flood 2014, SplitMix. */
uint64_t sl_dice_throw(struct sl_dice *dice) {
    uint64_t word = dice->state += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

int sl_dice_below(struct sl_dice *dice, int n) { return (int)((sl_dice_throw(dice) >> 32) * (uint64_t)n >> 32); }

double sl_dice_share(struct sl_dice *dice) { return (double)(sl_dice_throw(dice) >> 11) * 0x1p-53; }

/* ---- memory ---- */

static size_t codes(const struct sl_layout *layout) {
    return (size_t)layout->table.ranks * (size_t)sl_layout_actions(layout);
}

bool sl_sketch_open(struct sl_sketch *sketch, const struct sl_layout *layout) {
    *sketch = (struct sl_sketch){.code = calloc(codes(layout), sizeof *sketch->code), .span = INFINITY};
    return sketch->code;
}

void sl_sketch_copy(struct sl_sketch *sketch, const struct sl_sketch *from, const struct sl_layout *layout) {
    memcpy(sketch->code, from->code, codes(layout) * sizeof *sketch->code);
    sketch->span = from->span;
}

void sl_sketch_free(struct sl_sketch *sketch) {
    free(sketch->code);
    *sketch = (struct sl_sketch){0};
}

bool sl_sketch_walk_open(struct sl_sketch_walk *walk, const struct sl_layout *layout) {
    const size_t ranks = (size_t)layout->table.ranks, kinds = ranks * (size_t)layout->table.loops * SL_SKETCH_KINDS;
    const size_t actions = codes(layout);
    *walk = (struct sl_sketch_walk){.next = calloc(ranks + kinds + 2 * actions, sizeof *walk->next),
                                    .now = calloc(ranks + actions, sizeof *walk->now),
                                    .waited = calloc(actions, sizeof *walk->waited)};
    if (!walk->next || !walk->now || !walk->waited) return false;
    walk->done = walk->next + ranks;
    walk->place = walk->done + kinds;
    walk->which = walk->place + actions;
    walk->end = walk->now + ranks;
    return true;
}

void sl_sketch_walk_free(struct sl_sketch_walk *walk) {
    free(walk->next);
    free(walk->now);
    free(walk->waited);
}

/* ---- feasibility and time ---- */

bool sl_sketch_fits(const struct sl_layout *layout, int rank, const uint16_t *code) {
    const int actions = sl_layout_actions(layout);
    int done[SL_SKETCH_KINDS * SL_SKETCH_LOOPS] = {0};
    double held = 0;
    for (int i = 0; i < actions; i++) {
        const int kind = code[i] % SL_SKETCH_KINDS;
        const double kept = layout->kept[sl_schedule_stage(&layout->table, rank, code[i] / SL_SKETCH_KINDS)];
        if (kind != SL_SKETCH_F && done[code[i]] >= done[code[i] - 1]) return false;
        done[code[i]]++;
        if (kind == SL_SKETCH_F) held += kept;
        if (kind == SL_SKETCH_W) held -= kept;
        if (held > layout->memory * (1 + 1e-12)) return false;
    }
    return true;
}

/* Runs the next action of RANK; false: it waits for a message. */
static bool step(const struct sl_layout *layout, const struct sl_sketch *sketch, struct sl_sketch_walk *walk,
                 int rank) {
    const struct sl_schedule *table = &layout->table;
    const int actions = sl_layout_actions(layout), microbatches = table->microbatches;
    const int place = walk->next[rank], code = sketch->code[(size_t)rank * (size_t)actions + (size_t)place];
    const int kind = code % SL_SKETCH_KINDS, stage = sl_schedule_stage(table, rank, code / SL_SKETCH_KINDS);
    const int cell = stage * SL_SKETCH_KINDS + kind, microbatch = walk->done[cell];
    const int source = sl_layout_source(layout, stage, kind);
    double begin = walk->now[rank];
    if (source >= 0) {
        const int from = source * SL_SKETCH_KINDS + kind;
        if (walk->done[from] <= microbatch) return false;
        begin = fmax(begin, walk->end[from * microbatches + microbatch] + sl_layout_travel(layout, source, stage));
    }
    const int at = rank * actions + place;
    walk->waited[at] = begin > walk->now[rank];
    walk->which[at] = microbatch;
    walk->place[cell * microbatches + microbatch] = place;
    walk->now[rank] = walk->end[cell * microbatches + microbatch] = begin + sl_layout_cost(layout, stage, kind);
    walk->done[cell]++;
    walk->next[rank]++;
    const int to = kind == SL_SKETCH_F ? stage + 1 : kind == SL_SKETCH_I ? stage - 1 : -1;
    if (to >= 0 && to < sl_schedule_stages(table)) sl_turns_wake(&walk->turns, sl_schedule_rank_of(table, to));
    return true;
}

void sl_sketch_time(struct sl_sketch *sketch, const struct sl_layout *layout, struct sl_sketch_walk *walk) {
    const int ranks = layout->table.ranks, actions = sl_layout_actions(layout);
    int rank, left = ranks * actions;
    memset(walk->next, 0, (size_t)ranks * sizeof *walk->next);
    memset(walk->now, 0, (size_t)ranks * sizeof *walk->now);
    memset(walk->done, 0, (size_t)ranks * (size_t)layout->table.loops * SL_SKETCH_KINDS * sizeof *walk->done);
    sl_turns_begin(&walk->turns, ranks);
    while ((rank = sl_turns_next(&walk->turns)) >= 0)
        while (walk->next[rank] < actions && step(layout, sketch, walk, rank)) left--;
    sketch->span = left ? INFINITY : 0;
    for (int r = 0; r < ranks && !left; r++) sketch->span = fmax(sketch->span, walk->now[r]);
}

/* ---- tables ---- */

bool sl_sketch_read(struct sl_sketch *sketch, const struct sl_layout *layout, const struct sl_schedule *table,
                    struct sl_sketch_walk *walk) {
    const int actions = sl_layout_actions(layout);
    for (int r = 0; r < table->ranks; r++) {
        uint16_t *code = &sketch->code[(size_t)r * (size_t)actions];
        int count = 0;
        for (int i = 0; i < table->rank[r].count; i++) {
            const struct sl_action *action = &table->rank[r].action[i];
            const int first = SL_SKETCH_KINDS * action->loop;
            if (action->kind > SL_WEIGHT_GRADIENT) continue;
            if (action->kind == SL_FORWARD) code[count++] = (uint16_t)(first + SL_SKETCH_F);
            if (sl_has_input_gradient(action->kind)) code[count++] = (uint16_t)(first + SL_SKETCH_I);
            if (sl_has_weight_gradient(action->kind)) code[count++] = (uint16_t)(first + SL_SKETCH_W);
        }
        if (!sl_sketch_fits(layout, r, code)) return false;
    }
    sl_sketch_time(sketch, layout, walk);
    return sketch->span < INFINITY;
}

int sl_sketch_write(const struct sl_sketch *sketch, const struct sl_layout *layout, struct sl_schedule *table,
                    struct sl_error *error) {
    static const enum sl_action_kind kind[SL_SKETCH_KINDS] = {SL_FORWARD, SL_INPUT_GRADIENT, SL_WEIGHT_GRADIENT};
    const int actions = sl_layout_actions(layout);
    for (int r = 0; r < table->ranks; r++) {
        int done[SL_SKETCH_KINDS * SL_SKETCH_LOOPS] = {0};
        for (int i = 0; i < actions; i++) {
            const int code = sketch->code[(size_t)r * (size_t)actions + (size_t)i];
            const int stage = sl_schedule_stage(table, r, code / SL_SKETCH_KINDS);
            if (sl_schedule_compute(table, kind[code % SL_SKETCH_KINDS], stage, done[code]++, false))
                return sl_error_set(error, SL_FAILED, "no memory for the schedule");
        }
    }
    return sl_schedule_clock(table, error);
}
