/* run.h - a training run's metrics, as written by a driver's --metrics. */
#ifndef SL_DRIVERS_TOOLS_REPORT_RUNS_RUN_H
#define SL_DRIVERS_TOOLS_REPORT_RUNS_RUN_H

#include <jansson.h>

#include "drivers/tools/report/runs/series.h"
#include "spmd/base/error.h"

/* Quantities in a step's line. */
enum report_quantity {
    REPORT_LOSS,
    REPORT_EVALUATION,
    REPORT_ACCURACY,
    REPORT_TEST_ACCURACY,
    REPORT_RATE,
    REPORT_NORM,
    REPORT_TOKENS,
    REPORT_SAMPLES,
    REPORT_MS,
    REPORT_UTILIZATION,
    REPORT_BALANCE,
    REPORT_QUANTITIES
};

/* Zero-initialize. */
struct report_run {
    char *name, *metrics, *trace; /* paths of its files; NULL: none */
    struct report_series series[REPORT_QUANTITIES];
    json_t *losses;  /* the watcher's line about restarts; NULL: there is none */
    json_t *summary; /* the last line, written at the end of the run; NULL: the run has not ended */
    int cut;         /* number of the last line if it is incomplete, as during a run; otherwise 0 */
};

/* Reads RUN's metrics, which may still grow. SL_BAD_INPUT if a line is not an object or a value is not a number; the
 * error names file and line. Skips lines and keys of other kinds. */
int report_run_read(struct report_run *run, struct sl_error *error);
void report_run_free(struct report_run *run);

/* Returns the quantity's key in metrics; if it has several, the first. */
const char *report_quantity_key(enum report_quantity quantity);

/* Returns the number of steps with a loss. */
static inline int report_run_steps(const struct report_run *run) { return run->series[REPORT_LOSS].count; }

#endif
