/* forecast.h - predicted beside measured, for programs with a loop of their own: what a step should take by the work
 * that its coordinates were seen to do, and what it took.
 *
 * A coordinate is watched in steps after the first, which touches memory:
 *
 *     struct sl_watch *watch = &run->watch[self->coordinate];
 *     sl_watch_begin(watch, self, trainer);
 *     ... some steps ...
 *     sl_watch_end(watch, trainer);
 *     sl_gather_records(self, run->watch, sizeof *watch);
 *
 * Then the simulator (spmd/schedule/simulate.h) puts the work into the schedule's order. What a step takes beyond that
 * is waiting that the schedule does not explain. */
#ifndef SL_LAYERS_MODELS_FORECAST_H
#define SL_LAYERS_MODELS_FORECAST_H

#include <stdio.h>

#include "layers/modules/profile.h"
#include "layers/training/trace_file.h"
#include "layers/training/trainer.h"

SL_BEGIN_C

/* Of one coordinate. */
struct sl_watch {
    struct sl_profile profile;
    struct sl_budget planned, held; /* bytes */
};

/* From now on WATCH->profile counts SELF's time, in steps of TRAINER; NULL: in those of a loop of the caller's own,
 * which hands the profile on, and adds what it has planned to WATCH->planned. */
void sl_watch_begin(struct sl_watch *watch, struct sl_spmd *self, struct sl_trainer *trainer);
/* No longer; and takes down what the coordinate holds. Does nothing to a watch that has not begun, or has ended. */
void sl_watch_end(struct sl_watch *watch, struct sl_trainer *trainer);

struct sl_step_forecast {
    double ms, bubble;                   /* predicted, of a step; the bubble as in layers/modules/profile.h */
    double measured_ms, measured_bubble; /* the share is NaN where coordinates share cores: nobody knows */
    int run;                             /* microbatches that actions take together (spmd/schedule/fuse.h) */
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
