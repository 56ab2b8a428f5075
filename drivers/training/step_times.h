/* step_times.h - how long steps took: the first one, and the median of the others. */
#ifndef SL_DRIVERS_TRAINING_STEP_TIMES_H
#define SL_DRIVERS_TRAINING_STEP_TIMES_H

#include "spmd/base/base.h"

enum { SL_STEP_TIMES = 4096 };

/* Zero-initialize. */
struct sl_step_times {
    int64_t count;            /* steps so far */
    double first;             /* ms: it touches memory and generates code */
    double ms[SL_STEP_TIMES]; /* of the others, the later ones in the place of the oldest */
};

void sl_step_times_add(struct sl_step_times *times, double ms);

/* The median of the steps on record after the first; the first where it is the only one; NaN where there is none.
 * Sorts the record. */
double sl_step_times_median(struct sl_step_times *times);
/* The time below which SHARE (0 to 1) of them lie; otherwise the same. */
double sl_step_times_quantile(struct sl_step_times *times, double share);

#endif
