/* losses.h - lost time of a watched run, by cause, and the state that it moved. */
#ifndef SL_DRIVERS_TRAINING_RESTART_LOSSES_H
#define SL_DRIVERS_TRAINING_RESTART_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

#include "spmd/base/error.h"

/* SL_LOST_BY_AGAIN: steps that an earlier run had finished are computed again. */
enum sl_lost_by { SL_LOST_BY_START, SL_LOST_BY_DEATH, SL_LOST_BY_RESIZE, SL_LOST_BY_AGAIN, SL_LOST_BY };

/* Zero-initialize. */
struct sl_losses {
    double first;          /* when the watcher began; 0: not yet */
    double since;          /* when new steps ended; 0: they are being made */
    enum sl_lost_by cause; /* why */
    int count[SL_LOST_BY];
    double seconds[SL_LOST_BY];
    int64_t furthest; /* most finished steps so far, as far as the watcher knows */
    int64_t again;    /* steps that were computed again */
    double moved;     /* bytes of state that runs have read to continue */
};

/* No steps are made from the time NOW on: the run starts, or has ended. */
void sl_losses_begin(struct sl_losses *losses, double now);
/* The run continues after STEP steps, with BYTES of state, because of CAUSE. */
void sl_losses_cause(struct sl_losses *losses, enum sl_lost_by cause, int64_t step, double bytes);
/* Whether time is being lost: no new steps are made. */
bool sl_losses_run(const struct sl_losses *losses);
/* The run has made STEP steps. Returns the lost seconds before that; 0 if there was no pause. */
double sl_losses_end(struct sl_losses *losses, int64_t step);

/* Reports the losses of a run that was started again: with JSON as an object on stdout, otherwise in a line on stderr;
 * and as the last object of the file METRICS, unless that is NULL or no regular file. KNOWN: the times of steps are
 * known, because steps were kept in memory. */
int sl_losses_report(const struct sl_losses *losses, bool known, bool json, const char *metrics,
                     struct sl_error *error);

#endif
