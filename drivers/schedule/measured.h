/* measured.h - one step of a training run as a timeline. */
#ifndef SL_DRIVERS_SCHEDULE_MEASURED_H
#define SL_DRIVERS_SCHEDULE_MEASURED_H

#include "drivers/schedule/compare.h"

struct schedule_measured_step {
    int step;      /* its number in the run */
    double length; /* ms */
    int count;
    struct sl_event *event; /* as timeline.h draws them; ms from the begin of the step */
};

/* A step as they are: that of median length among TRACE's, which schedule_trace_measure has read, in its first
 * pipeline, as far as it passes through SCHEDULE for the first time. Waiting is where there are no events. SL_FAILED
 * without memory. Free with schedule_measured_step_free. */
int schedule_measured_step_find(struct schedule_measured_step *step, const struct schedule_trace *trace,
                                const struct sl_schedule *schedule, struct sl_error *error);
void schedule_measured_step_free(struct schedule_measured_step *step);

#endif
