/* fuse.c - joins neighbouring microbatches into runs, and chooses their length. */
#include "spmd/schedule/fuse.h"

#include <stdlib.h>

#include "spmd/schedule/simulate.h"

/* The number of rows whose products take as long as reading the weights. A core computes about 6 times as many
 * operations a second as its share of a large cache delivers bytes, so a weight (4 bytes) arrives in the time of 12
 * rows (2 operations each). Prefetching does not hide it: products of 128 rows are about a tenth slower with weights
 * from the cache. */
enum { ROWS_OF_WEIGHTS = 12 };

static bool is_joined(enum sl_action_kind kind) { return kind == SL_FORWARD || sl_has_input_gradient(kind); }

/* Whether the RUN actions from FIRST on, of COUNT remaining ones, are a run; *LOWEST is its first microbatch. */
static bool is_run(const struct sl_action *first, int count, int run, int *lowest) {
    if (count < run) return false;
    const int step = run > 1 && first[1].microbatch < first->microbatch ? -1 : 1;
    *lowest = step > 0 ? first->microbatch : first[run - 1].microbatch;
    if (*lowest % run) return false;
    for (int i = 0; i < run; i++) {
        const struct sl_action *action = &first[i];
        const bool same = action->kind == first->kind && action->loop == first->loop && !action->paired;
        if (!same || action->microbatch != first->microbatch + i * step) return false;
        if (action->has_input != first->has_input) return false;
    }
    return count == run || !first[run].paired;
}

/* Appends FROM's actions to TO, in runs. False if some actions cannot be joined. */
static bool join_rank(const struct sl_rank_schedule *from, int run, struct sl_rank_schedule *to, bool *memory) {
    for (int i = 0; i < from->count; i++) {
        struct sl_action action = from->action[i];
        if (run > 1 && is_joined(action.kind)) {
            int lowest;
            if (!is_run(&from->action[i], from->count - i, run, &lowest)) return false;
            action.microbatch = (uint16_t)lowest; /* the executor finds a run's rows by its lowest microbatch */
            i += run - 1;
        }
        if (!sl_schedule_append(to, &action)) return *memory = false;
    }
    return true;
}

static void free_ranks(struct sl_rank_schedule *rank, int ranks) {
    for (int r = 0; rank && r < ranks; r++) free(rank[r].action);
    free(rank);
}

/* Makes JOINED: SCHEDULE in runs of RUN, with ranks of its own. Free them with free_ranks. */
static int join(const struct sl_schedule *schedule, int run, struct sl_schedule *joined, bool *fused,
                struct sl_error *error) {
    bool memory;
    struct sl_error why = {0};
    *joined = *schedule;
    joined->run = run;
    joined->rank = calloc((size_t)schedule->ranks, sizeof *joined->rank);
    *fused = memory = joined->rank != NULL;
    for (int r = 0; r < schedule->ranks && *fused; r++)
        *fused = join_rank(&schedule->rank[r], run, &joined->rank[r], &memory);
    if (*fused && run > 1)
        *fused = !sl_schedule_clock(joined, &why); /* not fused if stages need each other within a
                                                      run */
    if (memory && why.status != SL_FAILED) return SL_OK;
    return sl_error_set(error, SL_FAILED, "schedule %s: no memory to fuse microbatches", schedule->name);
}

int sl_schedule_fuse(struct sl_schedule *schedule, int run, bool *fused, struct sl_error *error) {
    struct sl_schedule joined;
    *fused = false;
    if (schedule->lowered || schedule->run > 1 || run < 2 || sl_schedule_first_of_copy(schedule, 1) % run) return SL_OK;
    const int status = join(schedule, run, &joined, fused, error);
    free_ranks(*fused ? schedule->rank : joined.rank, schedule->ranks);
    if (*fused) *schedule = joined;
    return status;
}

/* ---- choice of the length of a run ---- */

/* Lowers TABLE and computes its time: the larger of the work per core and the simulated span. */
static int time_of(struct sl_schedule *table, const struct sl_fusing *fusing, double *time, struct sl_error *error) {
    const double rows = fusing->rows, once = ROWS_OF_WEIGHTS, work = rows + once;
    const struct sl_stage_costs stage = {.forward = work, .input_gradient = work, .weight_gradient = rows};
    const struct sl_costs costs = {
        .count = 1, .stage = &stage, .shared = once / work, .group = table->microbatches, .overlap = true};
    struct sl_simulation simulation;
    double busy = 0;
    SL_TRY(sl_schedule_lower(table, error));
    SL_TRY(sl_schedule_time(table, &costs, &simulation, error));
    for (int r = 0; r < simulation.ranks; r++) busy += simulation.rank[r].busy;
    const double pipelines = (double)fusing->coordinates / table->ranks;
    const double shared = fusing->cores > 0 ? busy * pipelines / fusing->cores : 0;
    *time = shared > simulation.span ? shared : simulation.span;
    sl_simulation_free(&simulation);
    return SL_OK;
}

/* Computes *TIME of the table in runs of RUN; negative if it has no such runs, or cannot be run at all. */
static int try_run(const struct sl_schedule *schedule, int run, const struct sl_fusing *fusing, double *time,
                   struct sl_error *error) {
    struct sl_schedule table;
    bool fused;
    *time = -1;
    int status = join(schedule, run, &table, &fused, error);
    if (status == SL_OK && fused) status = time_of(&table, fusing, time, error);
    free_ranks(table.rank, schedule->ranks);
    return status == SL_FAILED ? status : SL_OK; /* the check of the table reports errors in it */
}

int sl_schedule_fuse_planned(struct sl_schedule *schedule, const struct sl_fusing *fusing, struct sl_error *error) {
    const int microbatches = schedule->microbatches;
    double least = -1;
    int best = 1;
    bool fused;
    if (schedule->lowered) return SL_OK;
    for (int run = 2; run <= microbatches; run++) {
        double time;
        if (microbatches % run || sl_schedule_first_of_copy(schedule, 1) % run ||
            (fusing->group && fusing->group % run))
            continue;
        SL_TRY(try_run(schedule, run, fusing, &time, error));
        if (time < 0) continue;
        if (least < 0) SL_TRY(try_run(schedule, 1, fusing, &least, error));
        if (time >= least) continue;
        least = time;
        best = run;
    }
    return sl_schedule_fuse(schedule, best, &fused, error);
}

bool sl_schedule_crowds(const struct sl_schedule *schedule, const struct sl_fusing *fusing) {
    return fusing->cores > 0 && fusing->coordinates / schedule->ranks >= fusing->cores;
}
