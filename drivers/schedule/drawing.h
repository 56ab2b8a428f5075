/* drawing.h - drawings of two timelines: a measured step under the predicted one, a schedule over another one. */
#ifndef SL_DRIVERS_SCHEDULE_DRAWING_H
#define SL_DRIVERS_SCHEDULE_DRAWING_H

#include "drivers/schedule/measured.h"
#include "drivers/schedule/report.h"
#include "drivers/schedule/study.h"
#include "spmd/schedule/drawing/timeline.h"

/* The two timelines that are compared, SIMULATION above STEP. They point into what they are given. */
void schedule_layers(const struct sl_schedule *schedule, const struct sl_simulation *simulation,
                     const struct schedule_measured_step *step, struct sl_timeline_layer layer[2]);

/* Each rank has two rows on one axis: REPORT's simulation, and STEP below it. */
void schedule_draw_comparison(const struct schedule_report *report, const struct schedule_measured_step *step,
                              sl_timeline_writer *write);

/* STUDY over UNDER, which is grey. */
void schedule_draw_over(const struct schedule_study *study, const struct schedule_study *under,
                        sl_timeline_writer *write, FILE *file);

#endif
