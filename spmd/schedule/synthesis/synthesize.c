/* synthesize.c - the search for a schedule: the layouts, what it begins with, and the table that is made of the best.
 */
#include "spmd/schedule/synthesis/synthesize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spmd/schedule/registry.h"
#include "spmd/schedule/synthesis/plan.h"

enum { MOST_LAYOUTS = 3 };

/* A layout, and the best plan for it. */
struct candidate {
    struct sl_layout layout;
    struct sl_plan best, start; /* START: room for one that is read from a table */
    struct sl_plan_walk walk;
};

double sl_search_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- layouts ---- */

static int no_memory(struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "no memory to look for a schedule");
}

static int open_layout(struct sl_layout *layout, const struct sl_synthesis *synthesis, int loops,
                       enum sl_stage_placement placement, struct sl_error *error) {
    const int parts = synthesis->ranks * synthesis->loops, stages = synthesis->ranks * loops;
    SL_TRY(sl_schedule_open(&layout->table, "synthesized", synthesis->ranks, loops, synthesis->microbatches, error));
    sl_schedule_place_stages(&layout->table, placement);
    layout->placement = placement;
    layout->shared = loops > 1 && placement == SL_RING;
    layout->communication = synthesis->communication;
    layout->memory = synthesis->memory;
    layout->cost = calloc((size_t)stages, sizeof *layout->cost);
    layout->kept = calloc((size_t)stages, sizeof *layout->kept);
    if (!layout->cost || !layout->kept) return no_memory(error);
    sl_join_costs(synthesis->part, parts, layout->cost, stages);
    sl_join_kept(synthesis->kept, parts, layout->kept, stages);
    for (int r = 0; r < synthesis->ranks; r++)
        if (sl_layout_share(layout, r) > layout->memory)
            return sl_error_set(error, SL_BAD_INPUT,
                                "rank %d keeps %.10g bytes of one microbatch: there is no schedule that keeps at most "
                                "%.10g",
                                r, sl_layout_share(layout, r), layout->memory);
    return SL_OK;
}

static int open_candidate(struct candidate *candidate, const struct sl_synthesis *synthesis, int loops,
                          enum sl_stage_placement placement, struct sl_error *error) {
    struct sl_layout *layout = &candidate->layout;
    SL_TRY(open_layout(layout, synthesis, loops, placement, error));
    if (!sl_plan_open(&candidate->best, layout) || !sl_plan_open(&candidate->start, layout) ||
        !sl_plan_walk_open(&candidate->walk, layout))
        return no_memory(error);
    return SL_OK;
}

static void free_candidate(struct candidate *candidate) {
    sl_schedule_free(&candidate->layout.table);
    free(candidate->layout.cost);
    free(candidate->layout.kept);
    sl_plan_free(&candidate->best);
    sl_plan_free(&candidate->start);
    sl_plan_walk_free(&candidate->walk);
    *candidate = (struct candidate){0};
}

/* ---- the search ---- */

/* One microbatch after the other: what always fits. */
static void one_by_one(struct candidate *candidate) {
    const struct sl_layout *layout = &candidate->layout;
    const int loops = layout->table.loops, ranks = layout->table.ranks, actions = sl_layout_actions(layout);
    for (int r = 0; r < ranks; r++) {
        uint16_t *code = &candidate->best.code[r * actions];
        for (int m = 0; m < layout->table.microbatches; m++) {
            for (int l = 0; l < loops; l++) *code++ = (uint16_t)(SL_PLAN_KINDS * l + SL_PLAN_F);
            for (int l = loops - 1; l >= 0; l--) {
                *code++ = (uint16_t)(SL_PLAN_KINDS * l + SL_PLAN_I);
                *code++ = (uint16_t)(SL_PLAN_KINDS * l + SL_PLAN_W);
            }
        }
    }
    sl_plan_time(&candidate->best, layout, &candidate->walk);
}

/* The schedules that have names, where they have the layout and fit. */
static void begin_with_named(struct candidate *candidate) {
    const struct sl_layout *layout = &candidate->layout;
    const struct sl_schedule *table = &layout->table;
    const struct sl_schedule_kind *kind;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        struct sl_schedule named;
        struct sl_error why;
        if (table->loops > 1 && kind->placement != layout->placement) continue;
        if (sl_schedule_generate(&named, kind, table->ranks, table->loops, table->microbatches, &why)) continue;
        if (sl_plan_read(&candidate->start, layout, &named, &candidate->walk) &&
            candidate->start.span < candidate->best.span)
            sl_plan_copy(&candidate->best, &candidate->start, layout);
        sl_schedule_free(&named);
    }
}

static bool look(struct candidate *candidate, const struct sl_synthesis *synthesis, double deadline) {
    struct sl_search search = {.dice = {synthesis->seed}, .deadline = deadline};
    const int lists = (synthesis->iterations + 3) / 4;
    one_by_one(candidate);
    if (synthesis->named) begin_with_named(candidate);
    if (!sl_plan_list(&candidate->best, &candidate->layout, &search, lists, &candidate->walk)) return false;
    return sl_plan_improve(&candidate->best, &candidate->layout, &search, synthesis->iterations - lists,
                           &candidate->walk);
}

static int make_table(const struct candidate *candidate, struct sl_synthesized *found, struct sl_error *error) {
    const struct sl_schedule *table = &candidate->layout.table;
    int slots;
    SL_TRY(sl_schedule_open(&found->schedule, table->name, table->ranks, table->loops, table->microbatches, error));
    sl_schedule_place_stages(&found->schedule, candidate->layout.placement);
    SL_TRY(sl_plan_write(&candidate->best, &candidate->layout, &found->schedule, error));
    SL_TRY(sl_schedule_lower(&found->schedule, error));
    return sl_schedule_slots(&found->schedule, 1, &slots, error);
}

static int check(const struct sl_synthesis *synthesis, struct sl_error *error) {
    if (synthesis->loops > SL_SYNTHESIS_MOST_LOOPS)
        return sl_error_set(error, SL_BAD_INPUT, "%d loops: a schedule that is looked for has at most %d",
                            synthesis->loops, SL_SYNTHESIS_MOST_LOOPS);
    if (!(synthesis->memory >= 0))
        return sl_error_set(error, SL_BAD_INPUT, "%g bytes of memory: must not be negative", synthesis->memory);
    return SL_OK;
}

/* Every layout has its part of the time that is left. */
static int look_at_all(struct candidate *candidate, int candidates, const struct sl_synthesis *synthesis,
                       struct sl_synthesized *found, struct sl_error *error) {
    const double end = sl_search_seconds() + synthesis->seconds;
    int best = 0;
    found->bound = INFINITY;
    for (int c = 0; c < candidates; c++) {
        const double now = sl_search_seconds();
        if (!look(&candidate[c], synthesis, now + (end - now) / (candidates - c))) return no_memory(error);
        found->bound = fmin(found->bound, sl_layout_bound(&candidate[c].layout));
        if (candidate[c].best.span < candidate[best].best.span) best = c;
    }
    found->span = candidate[best].best.span;
    return make_table(&candidate[best], found, error);
}

int sl_schedule_synthesize(const struct sl_synthesis *synthesis, struct sl_synthesized *found, struct sl_error *error) {
    const struct {
        int loops;
        enum sl_stage_placement placement;
    } way[MOST_LAYOUTS] = {{2, SL_V}, {1, SL_RING}, {synthesis->loops, SL_RING}};
    struct candidate candidate[MOST_LAYOUTS] = {0};
    struct sl_error why; /* one of them does not fit: others may */
    int candidates = 0, status = SL_OK;
    *found = (struct sl_synthesized){0};
    SL_TRY(check(synthesis, error));
    for (int w = 0; w < MOST_LAYOUTS; w++) {
        const bool again = w > 1 && synthesis->loops == 1, v = way[w].placement == SL_V;
        if (again || (v && synthesis->loops % 2)) continue;
        status = open_candidate(&candidate[candidates], synthesis, way[w].loops, way[w].placement, &why);
        if (status)
            free_candidate(&candidate[candidates]);
        else
            candidates++;
    }
    status = candidates ? look_at_all(candidate, candidates, synthesis, found, error)
                        : sl_error_set(error, why.status, "%s", why.message);
    if (status) sl_schedule_free(&found->schedule);
    for (int c = 0; c < candidates; c++) free_candidate(&candidate[c]);
    return status;
}
