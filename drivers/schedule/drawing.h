/* drawing.h - a measured step under the predicted one, as SVG. */
#ifndef SL_DRIVERS_SCHEDULE_DRAWING_H
#define SL_DRIVERS_SCHEDULE_DRAWING_H

#include "drivers/schedule/measured.h"
#include "drivers/schedule/report.h"

/* Each rank has two rows on one axis: REPORT's simulation, and STEP below it. */
void schedule_draw_comparison(const struct schedule_report *report, const struct schedule_measured_step *step);

#endif
