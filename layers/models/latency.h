/* latency.h - percentiles of times. Times are counted in classes of equal ratio, so memory and work do not grow with
 * their number. */
#ifndef SL_LAYERS_MODELS_LATENCY_H
#define SL_LAYERS_MODELS_LATENCY_H

#include <stdint.h>

#include "spmd/base/error.h"

SL_BEGIN_C

/* Classes of one percent, from a microsecond to a quarter of an hour; longer times are counted in the last class. */
enum { SL_LATENCY_CLASSES = 2072 };

/* Must be zero at first. */
struct sl_latency {
    int64_t count[SL_LATENCY_CLASSES], all;
};

/* Adds COUNT times of MS. */
void sl_latency_add(struct sl_latency *latency, double ms, int64_t count);
/* The smallest time, within a percent, that a SHARE, 0 to 1, of all times does not exceed; NaN if there are none. */
double sl_latency_percentile(const struct sl_latency *latency, double share);

SL_END_C
#endif
