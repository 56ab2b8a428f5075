/* progress.h - a line on stderr that says how far a run is: on a terminal one that changes, in a log another one at
 * steady times. */
#ifndef SL_DRIVERS_COMMON_PROGRESS_H
#define SL_DRIVERS_COMMON_PROGRESS_H

#include "spmd/base/base.h"

struct sl_progress {
    bool shown;         /* stderr is a terminal */
    double every;       /* where it is none: seconds from one line to the next; 0: there are none */
    bool drawn;         /* the line is on it now */
    const char *unit;   /* what is counted: "step" */
    const char *rows;   /* what each of them goes through: "tokens" */
    int64_t total;      /* how many there will be */
    int64_t before;     /* others, that were done before: a log counts them, too */
    double began, drew; /* sl_now() */
};

void sl_progress_begin(struct sl_progress *progress, const char *unit, const char *rows, int64_t total, double every);

/* DONE of the total are done, with so many ROWS in SECONDS: what else passed since the beginning, in evaluations or
 * while saving, is no part of the rate. LOSS is NAN where nothing
 * learns. Draws at most ten times a second. */
void sl_progress_update(struct sl_progress *progress, int64_t done, double rows, double seconds, double loss,
                        double accuracy);

/* The unit in which times of so many MS are told: milliseconds, or from ten seconds on seconds. */
struct sl_time_unit {
    double ms;
    const char *name;
};
static inline struct sl_time_unit sl_time_unit_of(double ms) {
    return ms < 1e4 ? (struct sl_time_unit){1, "ms"} : (struct sl_time_unit){1e3, "s"};
}

/* Takes the line away: before printing something else, and at the end. */
void sl_progress_clear(struct sl_progress *progress);

#endif
