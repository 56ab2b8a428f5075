/* timeline.h - a step of a pipeline from its trace, drawn below the predicted step. */
#ifndef SL_DRIVERS_TOOLS_REPORT_TIMELINE_H
#define SL_DRIVERS_TOOLS_REPORT_TIMELINE_H

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
    struct sl_error missing; /* reason if there is nothing to draw; status SL_OK: there is a drawing */
};

/* Reads the trace PATH, and simulates its schedule with the costs measured in it. SL_BAD_INPUT if it is not a trace.
 * If only its schedule cannot be made again, or is too large to be drawn, `missing` tells so. */
int report_timeline_open(struct report_timeline *timeline, const char *path, struct sl_error *error);
void report_timeline_free(struct report_timeline *timeline);

/* Draws a step of median length as an SVG file. */
void report_timeline_write(FILE *file, const struct report_timeline *timeline);

#endif
