/* step_times.c - a ring of the latest steps' times, and its median. */
#include "drivers/training/reports/step_times.h"

#include <math.h>
#include <stdlib.h>

void sl_step_times_add(struct sl_step_times *times, double ms) {
    const int64_t before = times->count++;
    if (before == 0)
        times->first = ms;
    else
        times->ms[(before - 1) % SL_STEP_TIMES] = ms;
}

static int by_value(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double sl_step_times_median(struct sl_step_times *times) {
    const int64_t others = times->count - 1, count = others < SL_STEP_TIMES ? others : SL_STEP_TIMES;
    if (count < 1) return times->count ? times->first : NAN;
    qsort(times->ms, (size_t)count, sizeof *times->ms, by_value);
    return 0.5 * (times->ms[(count - 1) / 2] + times->ms[count / 2]);
}

double sl_step_times_quantile(struct sl_step_times *times, double share) {
    const int64_t others = times->count - 1, count = others < SL_STEP_TIMES ? others : SL_STEP_TIMES;
    if (count < 1) return sl_step_times_median(times);
    sl_step_times_median(times); /* sorts the record */
    return times->ms[(int64_t)(share * (double)(count - 1) + 0.5)];
}
