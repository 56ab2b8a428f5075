/* drawing.h - a measured step under the predicted one, as SVG. */
#ifndef SL_DRIVERS_SCHEDULE_DRAWING_H
#define SL_DRIVERS_SCHEDULE_DRAWING_H

#include "drivers/schedule/measured.h"
#include "drivers/schedule/report.h"
#include "spmd/schedule/drawing/timeline.h"

/* The two timelines that are compared, SIMULATION above STEP. They point into what they are given. */
void schedule_layers(const struct sl_schedule *schedule, const struct sl_simulation *simulation,
                     const struct schedule_measured_step *step, struct sl_timeline_layer layer[2]);

/* Each rank has two rows on one axis: REPORT's simulation, and STEP below it. */
void schedule_draw_comparison(const struct schedule_report *report, const struct schedule_measured_step *step);

#endif
