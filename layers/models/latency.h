/* latency.h - percentiles of times, which are counted in classes of equal ratio: so room and work do not grow with the
 * number of times. */
#ifndef SL_LAYERS_MODELS_LATENCY_H
#define SL_LAYERS_MODELS_LATENCY_H

#include <stdint.h>

#include "spmd/base/error.h"

SL_BEGIN_C

/* Classes of one percent, from a microsecond to a quarter of an hour; longer times are counted in the last class. */
enum { SL_LATENCY_CLASSES = 2072 };

/* Begins zeroed. */
struct sl_latency {
    int64_t count[SL_LATENCY_CLASSES], all;
};

/* Counts MS, COUNT times. */
void sl_latency_add(struct sl_latency *latency, double ms, int64_t count);
/* The least time, within a percent, that SHARE of all times, 0 to 1, do not exceed; NaN where there are none. */
double sl_latency_percentile(const struct sl_latency *latency, double share);

SL_END_C
#endif
