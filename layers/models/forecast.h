/* forecast.h - predicted and measured time of a step, for programs with their own loop. The prediction uses the
 * measured work of the coordinates.
 *
 * Watch a coordinate in steps after the first, which touches memory for the first time:
 *
 *     struct sl_watch *watch = &run->watch[self->coordinate];
 *     sl_watch_begin(watch, self, trainer);
 *     ... some steps ...
 *     sl_watch_end(watch, trainer);
 *     sl_gather_records(self, run->watch, sizeof *watch);
 *
 * The simulator (spmd/schedule/simulate.h) then arranges the work as the schedule orders it. Any further time is
 * waiting unexplained by the schedule. */
#ifndef SL_LAYERS_MODELS_FORECAST_H
#define SL_LAYERS_MODELS_FORECAST_H

#include <stdio.h>

#include "layers/modules/calls/profile.h"
#include "layers/training/trace/trace_file.h"
#include "layers/training/trainer.h"

SL_BEGIN_C

/* Measurements of one coordinate. */
struct sl_watch {
    struct sl_profile profile;
    struct sl_budget planned, held; /* bytes */
};

/* Starts to count SELF's time in WATCH->profile, in steps of TRAINER. If TRAINER is NULL, the caller's own loop passes
 * the profile on, and adds its planned bytes to WATCH->planned. */
void sl_watch_begin(struct sl_watch *watch, struct sl_spmd *self, struct sl_trainer *trainer);
/* Stops counting, and records the coordinate's memory. Does nothing if the watch has not begun, or has ended. */
void sl_watch_end(struct sl_watch *watch, struct sl_trainer *trainer);

struct sl_step_forecast {
    double ms, bubble;                   /* predicted, per step; bubble as in layers/modules/calls/profile.h */
    double measured_ms, measured_bubble; /* measured_bubble is NaN if coordinates share cores: it is then unknown */
    int run;                             /* microbatches per action (spmd/schedule/fuse.h) */
    double planned, held;                /* bytes of the coordinate with the largest plan */
    enum sl_work most;                   /* kind of work, other than products, with the most time */
    double most_ms;                      /* its time per step, mean over the coordinates */
};

/* Predicts a step of RUN from WATCH [RUN->mesh->size], measured over STEPS steps, at least 1. Assumes that a rank's
 * stages take equal time, and so do a microbatch's forward and two gradients. SL_BAD_INPUT if STEPS is below 1,
 * SL_FAILED if memory is short. */
int sl_step_forecast_make(struct sl_step_forecast *forecast, const struct sl_trace_run *run,
                          const struct sl_watch *watch, int64_t steps, struct sl_error *error);
/* Prints the forecast in two lines. */
void sl_step_forecast_print(const struct sl_step_forecast *forecast, FILE *stream);

SL_END_C

#endif
