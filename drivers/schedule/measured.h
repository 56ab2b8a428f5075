/* measured.h - one step of a training run as a timeline. */
#ifndef SL_DRIVERS_SCHEDULE_MEASURED_H
#define SL_DRIVERS_SCHEDULE_MEASURED_H

#include "drivers/schedule/trace_means.h"

struct schedule_measured_step {
    int step;      /* number in the run */
    double length; /* ms */
    int count;
    struct sl_event *event; /* as drawn by timeline.h; ms from the beginning of the step */
};

/* Finds the step of median length in TRACE, which schedule_trace_measure has read: its first pipeline, and its first
 * pass through SCHEDULE. Waiting has no events. SL_FAILED without memory. Free with schedule_measured_step_free. */
int schedule_measured_step_find(struct schedule_measured_step *step, const struct schedule_trace *trace,
                                const struct sl_schedule *schedule, struct sl_error *error);
void schedule_measured_step_free(struct schedule_measured_step *step);

#endif
