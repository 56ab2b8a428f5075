/* synthesize.c - the search for a schedule: its layouts, its first sketches, and the table of the best sketch. */
#include "spmd/schedule/synthesis/synthesize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/registry.h"
#include "spmd/schedule/synthesis/sketch.h"

enum { MOST_LAYOUTS = 5 };

/* A kind of layout. */
struct way {
    int loops;
    enum sl_stage_placement placement;
    bool balanced;
    const char *name;
};

/* A layout and its best sketch. */
struct candidate {
    const struct way *way;
    struct sl_layout layout;
    struct sl_sketch best, start; /* START: a sketch to begin with */
    struct sl_sketch_walk walk;
};

/* ---- layouts ---- */

static int no_memory(struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "no memory to look for a schedule");
}

static int open_layout(struct sl_layout *layout, const struct sl_synthesis *synthesis, const struct way *way,
                       struct sl_error *error) {
    const int parts = synthesis->ranks * synthesis->loops, stages = synthesis->ranks * way->loops;
    struct sl_dice dice = {synthesis->seed};
    SL_TRY(sl_layout_open(layout, synthesis->ranks, way->loops, synthesis->microbatches, way->placement, error));
    layout->communication = synthesis->communication;
    layout->memory = synthesis->memory;
    sl_join_costs(synthesis->part, parts, layout->cost, stages);
    sl_join_kept(synthesis->kept, parts, layout->kept, stages);
    if (way->balanced && !sl_layout_balance(layout, &dice))
        return sl_error_set(error, SL_BAD_INPUT, "nothing to balance");
    for (int r = 0; r < synthesis->ranks; r++)
        if (sl_layout_share(layout, r) > layout->memory)
            return sl_error_set(error, SL_BAD_INPUT,
                                "rank %d keeps %.10g bytes of one microbatch: there is no schedule that keeps at most "
                                "%.10g",
                                r, sl_layout_share(layout, r), layout->memory);
    return SL_OK;
}

static int open_candidate(struct candidate *candidate, const struct sl_synthesis *synthesis, const struct way *way,
                          struct sl_error *error) {
    struct sl_layout *layout = &candidate->layout;
    candidate->way = way;
    SL_TRY(open_layout(layout, synthesis, way, error));
    if (!sl_sketch_open(&candidate->best, layout) || !sl_sketch_open(&candidate->start, layout) ||
        !sl_sketch_walk_open(&candidate->walk, layout))
        return no_memory(error);
    return SL_OK;
}

static void free_candidate(struct candidate *candidate) {
    sl_layout_free(&candidate->layout);
    sl_sketch_free(&candidate->best);
    sl_sketch_free(&candidate->start);
    sl_sketch_walk_free(&candidate->walk);
    *candidate = (struct candidate){0};
}

/* ---- the search ---- */

/* Makes a sketch that always fits: one microbatch after the other. */
static void one_by_one(struct candidate *candidate) {
    const struct sl_layout *layout = &candidate->layout;
    const int loops = layout->table.loops, ranks = layout->table.ranks, actions = sl_layout_actions(layout);
    for (int r = 0; r < ranks; r++) {
        uint16_t *code = &candidate->best.code[r * actions];
        for (int m = 0; m < layout->table.microbatches; m++) {
            for (int l = 0; l < loops; l++) *code++ = (uint16_t)(SL_SKETCH_KINDS * l + SL_SKETCH_F);
            for (int l = loops - 1; l >= 0; l--) {
                *code++ = (uint16_t)(SL_SKETCH_KINDS * l + SL_SKETCH_I);
                *code++ = (uint16_t)(SL_SKETCH_KINDS * l + SL_SKETCH_W);
            }
        }
    }
    sl_sketch_time(&candidate->best, layout, &candidate->walk);
}

/* Begins with the named schedules of the layout, if they fit. */
static void begin_with_named(struct candidate *candidate) {
    const struct sl_layout *layout = &candidate->layout;
    const struct sl_schedule *table = &layout->table;
    const struct sl_schedule_kind *kind;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        struct sl_schedule named;
        struct sl_error why;
        if (table->loops > 1 && (candidate->way->balanced || kind->placement != candidate->way->placement)) continue;
        if (sl_schedule_generate(&named, kind, table->ranks, table->loops, table->microbatches, &why)) continue;
        if (sl_sketch_read(&candidate->start, layout, &named, &candidate->walk) &&
            candidate->start.span < candidate->best.span)
            sl_sketch_copy(&candidate->best, &candidate->start, layout);
        sl_schedule_free(&named);
    }
}

/* Searches from a new start, and copies the result to BEST if it is shorter. */
static bool begin_anew(struct candidate *candidate, struct sl_search *search, int iterations) {
    const struct sl_layout *layout = &candidate->layout;
    struct sl_sketch *start = &candidate->start;
    const int some = (iterations + 3) / 4;
    start->span = INFINITY;
    if (!sl_sketch_list(start, layout, search, some, &candidate->walk) ||
        !sl_sketch_repeat(start, layout, search, some, &candidate->walk) ||
        !sl_sketch_improve(start, layout, search, iterations - some, &candidate->walk))
        return false;
    if (start->span < candidate->best.span) sl_sketch_copy(&candidate->best, start, layout);
    return true;
}

/* Searches in rounds: alternately from a new start, and by improving the best sketch so far. */
static bool look(struct candidate *candidate, const struct sl_synthesis *synthesis, double deadline) {
    enum { ROUND = 8000 };
    struct sl_search search = {
        .dice = {synthesis->seed}, .deadline = deadline, .enough = sl_layout_bound(&candidate->layout)};
    one_by_one(candidate);
    if (synthesis->named) begin_with_named(candidate);
    for (int left = synthesis->iterations, round = 0; left > 0; left -= ROUND, round++) {
        const int iterations = left < ROUND ? left : ROUND;
        if (sl_search_over(&search, &candidate->best, 0)) return true;
        if (!(round % 2 ? sl_sketch_improve(&candidate->best, &candidate->layout, &search, iterations, &candidate->walk)
                        : begin_anew(candidate, &search, iterations)))
            return false;
    }
    return true;
}

static int make_table(const struct candidate *candidate, struct sl_synthesized *found, struct sl_error *error) {
    const struct sl_schedule *table = &candidate->layout.table;
    int slots;
    SL_TRY(sl_schedule_open(&found->schedule, table->name, table->ranks, table->loops, table->microbatches, error));
    memcpy(found->schedule.stage, table->stage, (size_t)sl_schedule_stages(table) * sizeof *table->stage);
    memcpy(found->schedule.place, table->place, (size_t)sl_schedule_stages(table) * sizeof *table->place);
    SL_TRY(sl_sketch_write(&candidate->best, &candidate->layout, &found->schedule, error));
    SL_TRY(sl_schedule_lower(&found->schedule, error));
    return sl_schedule_slots(&found->schedule, 1, &slots, error);
}

static int check(const struct sl_synthesis *synthesis, struct sl_error *error) {
    const long long most = 1 << 16;
    if (synthesis->loops < 1 || synthesis->loops > SL_SYNTHESIS_MOST_LOOPS ||
        synthesis->ranks > SL_SYNTHESIS_MOST_RANKS)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d ranks, %d loops: a schedule that is looked for has 1 to %d ranks and 1 to %d loops",
                            synthesis->ranks, synthesis->loops, SL_SYNTHESIS_MOST_RANKS, SL_SYNTHESIS_MOST_LOOPS);
    if ((long long)synthesis->ranks * synthesis->loops * synthesis->microbatches > most)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d ranks x %d loops x %d microbatches: their product must be at most %lld",
                            synthesis->ranks, synthesis->loops, synthesis->microbatches, most);
    if (!(synthesis->memory >= 0))
        return sl_error_set(error, SL_BAD_INPUT, "%g bytes of memory: must not be negative", synthesis->memory);
    return SL_OK;
}

/* Gives every layout its part of the remaining time. A layout whose bound is not below the best span is skipped. */
static int look_at_all(struct candidate *candidate, int candidates, const struct sl_synthesis *synthesis,
                       struct sl_synthesized *found, struct sl_error *error) {
    const double end = sl_search_seconds() + synthesis->seconds;
    const struct candidate *best = NULL;
    found->bound = INFINITY;
    for (int c = 0; c < candidates; c++) {
        const double now = sl_search_seconds(), bound = sl_layout_bound(&candidate[c].layout);
        found->bound = fmin(found->bound, bound);
        if (best && bound >= best->best.span * (1 - 1e-12)) continue;
        if (!look(&candidate[c], synthesis, now + (end - now) / (candidates - c))) return no_memory(error);
        if (!best || candidate[c].best.span < best->best.span) best = &candidate[c];
    }
    found->span = best->best.span;
    found->layout = best->way->name;
    return make_table(best, found, error);
}

int sl_schedule_synthesize(const struct sl_synthesis *synthesis, struct sl_synthesized *found, struct sl_error *error) {
    const struct way way[MOST_LAYOUTS] = {{2, SL_V, false, "on a V"},
                                          {1, SL_RING, false, "in line"},
                                          {synthesis->loops, SL_RING, false, "on a ring"},
                                          {synthesis->loops, SL_RING, true, "balanced"},
                                          {2, SL_V, true, "balanced"}};
    struct candidate candidate[MOST_LAYOUTS] = {0};
    struct sl_error why, first = {0}; /* first error; other layouts may fit */
    int candidates = 0, status = SL_OK;
    *found = (struct sl_synthesized){0};
    SL_TRY(check(synthesis, error));
    for (int w = 0; w < MOST_LAYOUTS; w++) {
        const bool again = w > 1 && synthesis->loops == 1, v = way[w].placement == SL_V;
        if (again || (v && synthesis->loops % 2)) continue;
        status = open_candidate(&candidate[candidates], synthesis, &way[w], &why);
        if (status == SL_OK) {
            candidates++;
            continue;
        }
        if (!first.status) first = why;
        free_candidate(&candidate[candidates]);
    }
    status = candidates ? look_at_all(candidate, candidates, synthesis, found, error)
                        : sl_error_set(error, first.status, "%s", first.message);
    if (status) sl_schedule_free(&found->schedule);
    for (int c = 0; c < candidates; c++) free_candidate(&candidate[c]);
    return status;
}
