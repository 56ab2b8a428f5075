/* run.h - what is known of a training run: the lines that a driver's --metrics wrote. */
#ifndef SL_DRIVERS_REPORT_RUN_H
#define SL_DRIVERS_REPORT_RUN_H

#include <jansson.h>

#include "drivers/report/series.h"
#include "spmd/base/error.h"

/* What a step's line may say. */
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
    char *name, *metrics, *trace; /* the paths of its files; NULL: there is none */
    struct report_series series[REPORT_QUANTITIES];
    json_t *summary; /* the last line, which says that the run has ended; NULL: it has not */
    int cut;         /* the number of the last line where that is not whole, as of a run under way; otherwise 0 */
};

/* Reads RUN's metrics, which may still grow. A line that is no object, and a number that is none, are SL_BAD_INPUT; the
 * error names file and line. Lines and keys of other kinds are passed over. */
int report_run_read(struct report_run *run, struct sl_error *error);
void report_run_free(struct report_run *run);

/* Its name in metrics; of several the first one. */
const char *report_quantity_key(enum report_quantity quantity);

/* Steps with a loss. */
static inline int report_run_steps(const struct report_run *run) { return run->series[REPORT_LOSS].count; }

#endif
