/* step_times.h - step times: the first, and the median of the others. */
#ifndef SL_DRIVERS_TRAINING_REPORTS_STEP_TIMES_H
#define SL_DRIVERS_TRAINING_REPORTS_STEP_TIMES_H

#include "spmd/base/base.h"

enum { SL_STEP_TIMES = 4096 };

/* Zero-initialize. */
struct sl_step_times {
    int64_t count;            /* steps so far */
    double first;             /* ms; includes first touches of memory and code generation */
    double ms[SL_STEP_TIMES]; /* times of the others; the latest replace the oldest */
};

void sl_step_times_add(struct sl_step_times *times, double ms);

/* Returns the median of the recorded steps after the first; the first step's time if it is the only one; NaN if
 * there is none. Sorts the record. */
double sl_step_times_median(struct sl_step_times *times);
/* Returns the time below which SHARE (0 to 1) of them lie; otherwise as sl_step_times_median. */
double sl_step_times_quantile(struct sl_step_times *times, double share);

#endif
