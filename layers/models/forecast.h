/* forecast.h - predicted beside measured, for programs with a loop of their own: what a step should take by the work
 * that its coordinates were seen to do, and what it took.
 *
 * A coordinate is watched in steps after the first, which touches memory:
 *
 *     struct sl_watch *watch = &run->watch[self->coordinate];
 *     sl_profile_start(&watch->profile, self);
 *     sl_trainer_set_profile(trainer, &watch->profile);
 *     ... some steps ...
 *     sl_profile_end(&watch->profile, SL_WORK_OTHER);
 *     sl_trainer_set_profile(trainer, NULL);
 *     sl_trainer_plan_bytes(trainer, &watch->planned);
 *     watch->held = self->held;
 *     sl_gather_records(self, run->watch, sizeof *watch);
 *
 * Then the simulator (spmd/schedule/simulate.h) puts the work into the schedule's order. What a step takes beyond that
 * is waiting that the schedule does not explain. */
#ifndef SL_LAYERS_MODELS_FORECAST_H
#define SL_LAYERS_MODELS_FORECAST_H

#include <stdio.h>

#include "layers/modules/profile.h"
#include "layers/training/trace_file.h"

SL_BEGIN_C

/* Of one coordinate. */
struct sl_watch {
    struct sl_profile profile;
    struct sl_budget planned, held; /* bytes */
};

struct sl_step_forecast {
    double ms, bubble;                   /* predicted, of a step; shares of the passes' time */
    double measured_ms, measured_bubble; /* the share is NaN where coordinates share cores: nobody knows */
    double planned, held;                /* bytes of the coordinate that plans to take most */
    enum sl_work most;                   /* what takes most beside products, */
    double most_ms;                      /* a step, of all coordinates' mean */
};

/* Predicts a step of RUN, of whose coordinates WATCH [RUN->mesh->size] tells in STEPS steps, 1 at least. A rank's
 * stages, and a microbatch's forward and two gradients, are taken to be alike. SL_BAD_INPUT, or SL_FAILED without
 * memory. */
int sl_step_forecast_make(struct sl_step_forecast *forecast, const struct sl_trace_run *run,
                          const struct sl_watch *watch, int64_t steps, struct sl_error *error);
/* Two lines for people. */
void sl_step_forecast_print(const struct sl_step_forecast *forecast, FILE *stream);

SL_END_C

#endif
