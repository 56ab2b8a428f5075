/* progress.h - a progress line on stderr: updated in place on a terminal, printed at intervals in a log. */
#ifndef SL_DRIVERS_COMMON_PROGRESS_H
#define SL_DRIVERS_COMMON_PROGRESS_H

#include "spmd/base/base.h"

struct sl_progress {
    bool shown;         /* stderr is a terminal */
    double every;       /* if not a terminal: seconds between lines; 0: no lines */
    bool drawn;         /* the line is on the terminal now */
    const char *unit;   /* counted unit: "step" */
    const char *rows;   /* rate's unit: "tokens" */
    int64_t total;      /* number of units of this run */
    int64_t before;     /* units done in earlier runs: added in log lines */
    double began, drew; /* sl_now() */
};

void sl_progress_begin(struct sl_progress *progress, const char *unit, const char *rows, int64_t total, double every);

/* Reports DONE units of the total, with ROWS in SECONDS; the rate excludes other time, such as evaluations or
 * saving. LOSS is NAN if nothing is trained. Draws at most ten times a second. */
void sl_progress_update(struct sl_progress *progress, int64_t done, double rows, double seconds, double loss,
                        double accuracy);

/* The unit for a time of MS milliseconds: milliseconds, or seconds from ten seconds on. */
struct sl_time_unit {
    double ms;
    const char *name;
};
static inline struct sl_time_unit sl_time_unit_of(double ms) {
    return ms < 1e4 ? (struct sl_time_unit){1, "ms"} : (struct sl_time_unit){1e3, "s"};
}

/* Clears the line: before other output, and at the end. */
void sl_progress_clear(struct sl_progress *progress);

#endif
