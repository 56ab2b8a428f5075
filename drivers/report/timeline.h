/* timeline.h - a step of a pipeline as its trace recorded it, under the same step as it is predicted. */
#ifndef SL_DRIVERS_REPORT_TIMELINE_H
#define SL_DRIVERS_REPORT_TIMELINE_H

#include <stdio.h>

#include "drivers/schedule/measured.h"

/* Zero-initialize. */
struct report_timeline {
    struct schedule_trace trace;
    struct sl_schedule schedule;
    struct sl_stage_costs *cost; /* [stages], means over all steps of the trace */
    struct schedule_measurement measurement;
    struct sl_simulation simulation;
    struct schedule_measured_step step;
    struct sl_error missing; /* why there is nothing to draw; status SL_OK: there is */
};

/* Reads the trace PATH, and simulates its schedule with the costs that are measured in it. SL_BAD_INPUT where it is no
 * trace. Where no more is wrong than that its schedule cannot be made again, or is too large to be drawn, `missing`
 * says so. */
int report_timeline_open(struct report_timeline *timeline, const char *path, struct sl_error *error);
void report_timeline_free(struct report_timeline *timeline);

/* Draws a step of typical length as SVG, a file of its own. */
void report_timeline_write(FILE *file, const struct report_timeline *timeline);

#endif
