/* losses.h - lost time of a watched run, by cause. */
#ifndef SL_DRIVERS_TRAINING_RESTART_LOSSES_H
#define SL_DRIVERS_TRAINING_RESTART_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

enum sl_lost_by { SL_LOST_BY_START, SL_LOST_BY_DEATH, SL_LOST_BY_RESIZE, SL_LOST_BY };

/* Zero-initialize. */
struct sl_losses {
    double first;          /* when the watcher began; 0: not yet */
    double since;          /* when steps ended; 0: steps are being made */
    enum sl_lost_by cause; /* why */
    int count[SL_LOST_BY];
    double seconds[SL_LOST_BY];
    int64_t furthest, again; /* steps in memory when the run ended; finished steps that were computed again */
};

/* No steps are made from the time NOW on: the run starts, or has ended. */
void sl_losses_begin(struct sl_losses *losses, double now);
/* The run goes on, after STEP steps, because of CAUSE. */
void sl_losses_cause(struct sl_losses *losses, enum sl_lost_by cause, int64_t step);
/* Whether time is being lost: no steps are made. */
bool sl_losses_run(const struct sl_losses *losses);
/* A step has been made. Returns the lost seconds before it; 0 if the previous step was made without a pause. */
double sl_losses_end(struct sl_losses *losses);

/* Prints the losses of a run that was started again: with JSON one object on stdout, otherwise a line on stderr. KNOWN:
 * the times of steps are known, because steps were kept in memory. */
void sl_losses_print(const struct sl_losses *losses, bool known, bool json);

#endif
