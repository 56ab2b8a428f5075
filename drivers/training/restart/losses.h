/* losses.h - the time that a watched run has lost, by cause. */
#ifndef SL_DRIVERS_TRAINING_RESTART_LOSSES_H
#define SL_DRIVERS_TRAINING_RESTART_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

enum sl_lost_by { SL_LOST_BY_START, SL_LOST_BY_DEATH, SL_LOST_BY_RESIZE, SL_LOST_BY };

/* Zero-initialize. */
struct sl_losses {
    double first;          /* when the watcher began; 0: not yet */
    double since;          /* when no step was made any more; 0: steps are made */
    enum sl_lost_by cause; /* why */
    int count[SL_LOST_BY];
    double seconds[SL_LOST_BY];
    int64_t furthest, again; /* steps: those in memory when the run ended; and finished ones that were computed again */
};

/* No steps are made from the time NOW on: the run starts, or has ended. */
void sl_losses_begin(struct sl_losses *losses, double now);
/* The run goes on, after STEP steps, because of CAUSE. */
void sl_losses_cause(struct sl_losses *losses, enum sl_lost_by cause, int64_t step);
/* Whether no steps are made. */
bool sl_losses_run(const struct sl_losses *losses);
/* A step has been made. Returns the seconds that were lost; 0 if steps were made before. */
double sl_losses_end(struct sl_losses *losses);

/* Prints the losses of a run that was started again: with JSON one object on stdout, otherwise a line on stderr. KNOWN:
 * steps were kept in memory, so that it is known when they were made. */
void sl_losses_print(const struct sl_losses *losses, bool known, bool json);

#endif
