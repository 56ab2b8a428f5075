/* schedule_report.h - output of the driver schedule about a simulated table, compared with a run if there is one. */
#ifndef SL_DRIVERS_SCHEDULE_SCHEDULE_REPORT_H
#define SL_DRIVERS_SCHEDULE_SCHEDULE_REPORT_H

#include "drivers/common/output.h"
#include "drivers/schedule/trace_means.h"
#include "drivers/schedule/synthesis.h"

struct schedule_report {
    const struct sl_output *output; /* receives all output */
    const struct sl_schedule *schedule;
    int buffers; /* number used in the proof */
    const struct sl_simulation *simulation;
    const struct schedule_measurement *measurement; /* NULL: no comparison */
    const struct schedule_trace *trace;             /* source of the measurement */
    const struct schedule_synthesis *synthesis;     /* NULL: the schedule was not synthesized */
};

/* Prints a line per rank: busy, idle, kept. */
void schedule_report_simulation(const struct schedule_report *report);
/* Prints three lines per rank, and three for their mean: measured, predicted, difference. */
void schedule_report_comparison(const struct schedule_report *report);
/* Prints the schedule's distance from the lower bound, and the ranks' saved activations. */
void schedule_report_synthesis(const struct schedule_report *report);
/* Prints everything as one JSON object. */
int schedule_report_json(const struct schedule_report *report, struct sl_error *error);
/* Prints {"name":..,"valid":false,"reason":..}, with "ranks" if RANKS is above 0. */
int schedule_report_invalid(const struct sl_output *output, const char *name, int ranks, const char *reason,
                            struct sl_error *error);

#endif
