/* forecast.c - predicts a step from measured work and the schedule. */
#include "layers/models/forecast.h"

#include <math.h>
#include <stdlib.h>

#include "spmd/schedule/simulate.h"

/* Names of the kinds of work, products excluded. */
static const char *const name_of[SL_WORKS] = {[SL_WORK_OTHER] = "the loop itself",
                                              [SL_WORK_KERNELS] = "norms and other passes over rows",
                                              [SL_WORK_OPTIMIZER] = "the optimizer",
                                              [SL_WORK_COMMUNICATION] = "moving and summing data",
                                              [SL_WORK_NOT_READY] = "waiting for other stages",
                                              [SL_WORK_TRANSFER] = "waiting for messages",
                                              [SL_WORK_NO_CORE] = "waiting for a core"};

void sl_watch_begin(struct sl_watch *watch, struct sl_spmd *self, struct sl_trainer *trainer) {
    sl_profile_start(&watch->profile, self);
    if (!trainer) return;
    sl_trainer_set_profile(trainer, &watch->profile);
    sl_trainer_plan_bytes(trainer, &watch->planned);
}

void sl_watch_end(struct sl_watch *watch, struct sl_trainer *trainer) {
    struct sl_spmd *self = watch->profile.self;
    if (!self) return;
    sl_profile_end(&watch->profile, SL_WORK_OTHER);
    watch->profile.self = NULL;
    watch->held = self->held;
    if (trainer) sl_trainer_set_profile(trainer, NULL);
}

static int ranks_of(const struct sl_trace_run *run) { return run->schedule->ranks; }

static int rank_of(const struct sl_trace_run *run, int coordinate) {
    const int axis = sl_mesh_find_axis(run->mesh, run->pipe_axis);
    return axis < 0 ? 0 : sl_mesh_index(run->mesh, coordinate, axis);
}

/* Seconds per step of a rank's own work, as the simulator defines it, without the optimizer. */
static double computing(const struct sl_profile *profile) {
    return profile->seconds[SL_WORK_PRODUCTS] + profile->seconds[SL_WORK_KERNELS] +
           profile->seconds[SL_WORK_COMMUNICATION] + profile->seconds[SL_WORK_OTHER];
}

/* Costs of each stage: means over the coordinates of its rank, with a third of the work for each of the three parts of
 * a microbatch. */
static void make_costs(const struct sl_trace_run *run, const struct sl_watch *watch, int64_t steps,
                       struct sl_stage_costs *stage) {
    const int size = run->mesh->size, stages = sl_schedule_stages(run->schedule);
    const double loops = run->schedule->loops, members = (double)size / ranks_of(run);
    const double parts = 3 * loops * run->schedule->microbatches / run->schedule->copies * run->passes;
    for (int s = 0; s < stages; s++) {
        double work = 0, optimizer = 0;
        for (int c = 0; c < size; c++) {
            if (rank_of(run, c) != sl_schedule_rank_of(run->schedule, s)) continue;
            work += 1e3 * computing(&watch[c].profile) / ((double)steps * members);
            optimizer += 1e3 * watch[c].profile.seconds[SL_WORK_OPTIMIZER] / ((double)steps * members);
        }
        stage[s] = (struct sl_stage_costs){.forward = work / parts,
                                           .input_gradient = work / parts,
                                           .weight_gradient = work / parts,
                                           .optimizer = optimizer / loops};
    }
}

static bool shares_cores(const struct sl_trace_run *run) { return run->cores > 0 && run->cores < run->mesh->size; }

/* Simulates a step. All passes but the last end without the optimizer. */
static int simulate(struct sl_step_forecast *forecast, const struct sl_trace_run *run, struct sl_stage_costs *stage,
                    struct sl_error *error) {
    const struct sl_costs costs = {.count = sl_schedule_stages(run->schedule),
                                   .stage = stage,
                                   .communication = run->delay_ms,
                                   .overlap = run->overlap,
                                   .group = run->wgrad_group,
                                   .cores = shares_cores(run) ? run->cores : 0,
                                   .coordinates = run->mesh->size};
    struct sl_simulation simulation = {0};
    SL_TRY(sl_schedule_time(run->schedule, &costs, &simulation, error));
    forecast->ms = simulation.span * (run->passes - 1) + simulation.step;
    forecast->bubble = simulation.bubble;
    forecast->run = sl_schedule_run(run->schedule, SL_FORWARD);
    sl_simulation_free(&simulation);
    return SL_OK;
}

/* Measures the coordinates' time by kind of work. */
static void measure(struct sl_step_forecast *forecast, const struct sl_trace_run *run, const struct sl_watch *watch,
                    int64_t steps) {
    const int size = run->mesh->size;
    double all[SL_WORKS] = {0}, sum = 0;
    for (int c = 0; c < size; c++)
        for (int w = 0; w < SL_WORKS; w++) all[w] += 1e3 * watch[c].profile.seconds[w] / ((double)steps * size);
    for (int w = 0; w < SL_WORKS; w++) {
        sum += all[w];
        if (w == SL_WORK_PRODUCTS || all[w] <= forecast->most_ms) continue;
        forecast->most = (enum sl_work)w;
        forecast->most_ms = all[w];
    }
    forecast->measured_ms = sum;
    forecast->measured_bubble =
        shares_cores(run) ? (double)NAN : sl_profile_bubble(&watch->profile, sizeof *watch, size);
    for (int c = 0; c < size; c++) {
        const double planned = (double)sl_budget_total(&watch[c].planned);
        if (c && planned <= forecast->planned) continue;
        forecast->planned = planned;
        forecast->held = (double)sl_budget_total(&watch[c].held);
    }
}

int sl_step_forecast_make(struct sl_step_forecast *forecast, const struct sl_trace_run *run,
                          const struct sl_watch *watch, int64_t steps, struct sl_error *error) {
    *forecast = (struct sl_step_forecast){0};
    if (steps < 1) return sl_error_set(error, SL_BAD_INPUT, "a step is predicted by the profile of 1 step at least");
    struct sl_stage_costs *stage = calloc((size_t)sl_schedule_stages(run->schedule), sizeof *stage);
    if (!stage) return sl_error_set(error, SL_FAILED, "no memory to predict a step");
    make_costs(run, watch, steps, stage);
    measure(forecast, run, watch, steps);
    const int status = simulate(forecast, run, stage, error);
    free(stage);
    return status;
}

void sl_step_forecast_print(const struct sl_step_forecast *forecast, FILE *stream) {
    fprintf(stream,
            "predicted %.4g ms a step, measured %.4g; planned %.1f KB a coordinate, held %.1f; bubble predicted ",
            forecast->ms, forecast->measured_ms, forecast->planned / 1e3, forecast->held / 1e3);
    fprintf(stream, "%.1f %%", 100 * forecast->bubble);
    if (!isnan(forecast->measured_bubble)) fprintf(stream, ", measured %.1f %%", 100 * forecast->measured_bubble);
    if (forecast->run > 1) fprintf(stream, " (of runs of %d microbatches)", forecast->run);
    fprintf(stream, "\nafter products, most time goes to %s: %.3g ms\n", name_of[forecast->most], forecast->most_ms);
}
