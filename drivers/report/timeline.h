/* timeline.h - a step of a pipeline as its trace recorded it, over the same step as it is predicted. */
#ifndef SL_DRIVERS_REPORT_TIMELINE_H
#define SL_DRIVERS_REPORT_TIMELINE_H

#include <stdio.h>

#include "drivers/schedule/compare.h"

/* Zero-initialize. */
struct report_timeline {
    struct schedule_trace trace;
    struct sl_schedule schedule;
    struct sl_stage_costs *cost; /* [stages], means over all steps of the trace */
    struct schedule_measurement measurement;
    struct sl_simulation simulation;
    struct sl_error missing; /* why there is nothing to draw; status SL_OK: there is */
};

/* Reads the trace PATH, and simulates its schedule with the costs that are measured in it. SL_BAD_INPUT where it is no
 * trace; where no more is wrong than that its schedule is none that can be made again, `missing` says so. */
int report_timeline_open(struct report_timeline *timeline, const char *path, struct sl_error *error);
void report_timeline_free(struct report_timeline *timeline);

/* Draws the first pipeline in the step in the middle of the trace. FILE_OF_ITS_OWN: as a file, not for a page. */
void report_timeline_write(FILE *file, const struct report_timeline *timeline, bool file_of_its_own);
/* Says in a sentence or two, on FILE, what is drawn, and the numbers that belong to it. */
void report_timeline_explain(FILE *file, const struct report_timeline *timeline);

#endif
