/* simulate.c - simulates a layout's pipeline with the stages' times, including the head's. */
#include <math.h>
#include <stdlib.h>

#include "drivers/plan/plan.h"
#include "spmd/schedule/simulate.h"

/* Kinds of stages with a shared head: lookups, then layers, then shares of the head. */
static bool is_lookup(const struct plan_layout *layout, int stage) {
    return layout->spread_head && stage < layout->stages;
}

static bool is_share(const struct plan_layout *layout, int stages, int stage) {
    return layout->spread_head && stage >= stages - layout->stages;
}

/* Returns a stage's time, relative to a forward of all layers of a rank. */
static double weight_of(const struct plan_job *job, const struct plan_layout *layout, int stages, int stage) {
    const double head = plan_head_share(job, layout->stages);
    const int loops = stages / layout->stages - (layout->spread_head ? 2 : 0);
    if (is_lookup(layout, stage)) return 0;
    if (is_share(layout, stages, stage)) return head / layout->stages;
    return 1.0 / loops + (stage == stages - 1 ? head : 0);
}

/* Returns the times of all stages, relative to a rank's forward and backward together. */
static struct sl_stage_costs *make_costs(const struct plan_job *job, const struct plan_layout *layout, int stages) {
    struct sl_stage_costs *cost = calloc((size_t)stages, sizeof *cost);
    const double whole = job->forward + job->backward, forward = whole > 0 ? job->forward / whole : 1.0 / 3;
    const double gradient = (1 - forward) / 2, again = layout->recompute ? forward : 0;
    for (int s = 0; cost && s < stages; s++) {
        const double weight = weight_of(job, layout, stages, s);
        cost[s] = (struct sl_stage_costs){.forward = weight * forward,
                                          .input_gradient = weight * (gradient + again),
                                          .weight_gradient = weight * gradient};
    }
    return cost;
}

/* Counts the microbatches with saved activations on the fullest ranks, for stages with layers and for shares of the
 * head. */
static void count_kept(const struct sl_schedule *schedule, const struct plan_layout *layout,
                       struct plan_simulation *simulation) {
    const int stages = sl_schedule_stages(schedule), loops = schedule->loops - (layout->spread_head ? 2 : 0);
    for (int r = 0; r < schedule->ranks; r++) {
        int kept = 0, heads = 0;
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const int stage = sl_schedule_stage(schedule, r, action->loop);
            const int more = (action->kind == SL_FORWARD) - sl_has_weight_gradient(action->kind);
            if (is_lookup(layout, stage)) continue;
            *(is_share(layout, stages, stage) ? &heads : &kept) += more;
            double *there = &simulation->kept[plan_place_of(r, schedule->ranks)];
            *there = fmax(*there, (double)kept / loops);
            simulation->kept_heads = fmax(simulation->kept_heads, heads);
        }
    }
}

static int simulate(struct plan_simulation *result, struct sl_schedule *schedule, const struct plan_job *job,
                    const struct plan_layout *layout, struct sl_error *error) {
    const int stages = sl_schedule_stages(schedule);
    const double whole = job->forward + job->backward;
    struct sl_simulation simulation = {0};
    struct sl_stage_costs *cost = make_costs(job, layout, stages);
    const struct sl_costs costs = {
        .count = stages, .stage = cost, .communication = whole > 0 ? fmin(job->exchange / whole, SL_MAX_COST) : 0};
    int status = cost ? sl_schedule_lower(schedule, error) : sl_error_set(error, SL_FAILED, "no memory to simulate");
    if (status == SL_OK) status = sl_schedule_time(schedule, &costs, &simulation, error);
    if (status == SL_OK) result->bubble = simulation.bubble;
    sl_simulation_free(&simulation);
    free(cost);
    return status;
}

int plan_simulate(struct plan_simulation *simulation, const struct plan_job *job, const struct plan_layout *layout,
                  const char *name, struct sl_error *error) {
    struct sl_schedule schedule = {0};
    *simulation = (struct plan_simulation){0};
    int status = plan_pipeline_table(&schedule, job, name, error);
    if (status == SL_OK) count_kept(&schedule, layout, simulation);
    if (status == SL_OK) status = simulate(simulation, &schedule, job, layout, error);
    sl_schedule_free(&schedule);
    return status;
}
