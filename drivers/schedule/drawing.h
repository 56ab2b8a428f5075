/* drawing.h - draws two timelines: a measured step below the predicted one, or one schedule over another. */
#ifndef SL_DRIVERS_SCHEDULE_DRAWING_H
#define SL_DRIVERS_SCHEDULE_DRAWING_H

#include "drivers/schedule/measured.h"
#include "drivers/schedule/schedule_report.h"
#include "drivers/schedule/study.h"
#include "spmd/schedule/drawing/timeline.h"

/* Sets LAYER to the two timelines, SIMULATION above STEP. The layers point into the arguments. */
void schedule_layers(const struct sl_schedule *schedule, const struct sl_simulation *simulation,
                     const struct schedule_measured_step *step, struct sl_timeline_layer layer[2]);

/* Draws two rows per rank on one axis: REPORT's simulation, and STEP below it. */
void schedule_draw_comparison(const struct schedule_report *report, const struct schedule_measured_step *step,
                              sl_timeline_writer *write);

/* Draws STUDY over UNDER, which is grey. */
void schedule_draw_over(const struct schedule_study *study, const struct schedule_study *under,
                        sl_timeline_writer *write, FILE *file);

#endif
