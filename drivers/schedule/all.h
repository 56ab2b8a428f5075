/* all.h - all schedules that there are, compared on one model. */
#ifndef SL_DRIVERS_SCHEDULE_ALL_H
#define SL_DRIVERS_SCHEDULE_ALL_H

#include "drivers/common/output.h"
#include "spmd/schedule/simulate.h"

enum schedule_all_format { SCHEDULE_ALL_TABLE, SCHEDULE_ALL_SVG, SCHEDULE_ALL_HTML, SCHEDULE_ALL_JSON };

/* What all schedules have in common. */
struct schedule_all {
    int stages, microbatches; /* ranks, and parts of a batch */
    int loops;                /* stages of each rank, or as many of them as a schedule can have; 0: its default */
    int buffers, group;       /* as schedule_study_prove takes them */
    /* Of the model's parts, of which a rank has LOOPS, or the most that any schedule has by default. A schedule whose
     * stages are fewer puts several into one. */
    struct sl_stage_costs cost;
    const char *costs; /* a file that says otherwise (costs.h); NULL: none */
    double communication;
    bool overlap;
    int cores; /* that ranks share; 0: each has one */
    enum schedule_all_format format;
};

/* Makes, proves and simulates every schedule of the registry, and prints them, the fastest first: a table, one drawing
 * or a JSON object a line. Those that do not fit the numbers come last, with the reason. SL_BAD_INPUT where none fits.
 */
int schedule_all(const struct schedule_all *all, const struct sl_output *output, struct sl_error *error);

#endif
