/* all.h - compares all schedules on one model. */
#ifndef SL_DRIVERS_SCHEDULE_ALL_H
#define SL_DRIVERS_SCHEDULE_ALL_H

#include "drivers/common/output.h"
#include "drivers/schedule/study.h"

enum schedule_all_format { SCHEDULE_ALL_TABLE, SCHEDULE_ALL_SVG, SCHEDULE_ALL_HTML, SCHEDULE_ALL_JSON };

/* Input of the comparison. */
struct schedule_all {
    struct schedule_model model; /* loops 0: each schedule's default, and the costs are those of a stage if a rank has
                                  * the largest of these defaults */
    const char *costs;           /* a file of costs (costs.h) instead; NULL: none */
    enum schedule_all_format format;
};

/* Makes, proves and simulates every schedule of the registry, and prints them, the fastest first: as a table, one
 * drawing or a JSON object per line. Schedules that do not fit the numbers come last, with the reason. SL_BAD_INPUT
 * if none fits. */
int schedule_all(const struct schedule_all *all, const struct sl_output *output, struct sl_error *error);

#endif
