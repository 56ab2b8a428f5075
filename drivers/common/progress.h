/* progress.h - a line on stderr that says how far a run is; nothing where stderr is no terminal. */
#ifndef SL_DRIVERS_COMMON_PROGRESS_H
#define SL_DRIVERS_COMMON_PROGRESS_H

#include "spmd/base/base.h"

struct sl_progress {
    bool shown;         /* stderr is a terminal */
    bool drawn;         /* the line is on it now */
    const char *unit;   /* what is counted: "step" */
    const char *rows;   /* what each of them goes through: "tokens" */
    int64_t total;      /* how many there will be */
    double began, drew; /* sl_now() */
};

void sl_progress_begin(struct sl_progress *progress, const char *unit, const char *rows, int64_t total);

/* DONE of the total are done, with so many ROWS in SECONDS: what else passed since the beginning, in evaluations or
 * while saving, is no part of the rate. LOSS is NAN where nothing
 * learns. Draws at most ten times a second. */
void sl_progress_update(struct sl_progress *progress, int64_t done, double rows, double seconds, double loss,
                        double accuracy);

/* Takes the line away: before printing something else, and at the end. */
void sl_progress_clear(struct sl_progress *progress);

#endif
