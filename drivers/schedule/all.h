/* all.h - all schedules that there are, compared on one model. */
#ifndef SL_DRIVERS_SCHEDULE_ALL_H
#define SL_DRIVERS_SCHEDULE_ALL_H

#include "drivers/common/output.h"
#include "drivers/schedule/study.h"

enum schedule_all_format { SCHEDULE_ALL_TABLE, SCHEDULE_ALL_SVG, SCHEDULE_ALL_HTML, SCHEDULE_ALL_JSON };

/* What all schedules have in common. */
struct schedule_all {
    struct schedule_model model; /* loops 0: a schedule's default; costs are then of a stage at the most of these */
    const char *costs;           /* a file that says otherwise (costs.h); NULL: none */
    enum schedule_all_format format;
};

/* Makes, proves and simulates every schedule of the registry, and prints them, the fastest first: a table, one drawing
 * or a JSON object a line. Those that do not fit the numbers come last, with the reason. SL_BAD_INPUT where none fits.
 */
int schedule_all(const struct schedule_all *all, const struct sl_output *output, struct sl_error *error);

#endif
