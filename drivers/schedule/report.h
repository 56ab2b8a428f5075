/* report.h - what the driver schedule says about a simulated table, and about a run beside it. */
#ifndef SL_DRIVERS_SCHEDULE_REPORT_H
#define SL_DRIVERS_SCHEDULE_REPORT_H

#include "drivers/common/output.h"
#include "drivers/schedule/compare.h"
#include "drivers/schedule/synthesis.h"

struct schedule_report {
    const struct sl_output *output; /* all of it goes here */
    const struct sl_schedule *schedule;
    int buffers; /* that it was proven with */
    const struct sl_simulation *simulation;
    const struct schedule_measurement *measurement; /* NULL: nothing to compare with */
    const struct schedule_trace *trace;             /* that it was taken from */
    const struct schedule_synthesis *synthesis;     /* NULL: the schedule was not looked for */
};

/* A line a rank: busy, idle, kept. */
void schedule_report_simulation(const struct schedule_report *report);
/* Three lines a rank, and three for their mean: measured, predicted, difference. */
void schedule_report_comparison(const struct schedule_report *report);
/* How near the schedule is to what is possible, and what ranks keep. */
void schedule_report_synthesis(const struct schedule_report *report);
/* All of it as one object. */
int schedule_report_json(const struct schedule_report *report, struct sl_error *error);
/* {"name":..,"valid":false,"reason":..}; "ranks" where they are known, above 0. */
int schedule_report_invalid(const struct sl_output *output, const char *name, int ranks, const char *reason,
                            struct sl_error *error);

#endif
