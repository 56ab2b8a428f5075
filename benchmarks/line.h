/* line.h - distance between two cores: the time that a cache line takes from one to the other. */
#ifndef SL_BENCHMARKS_LINE_H
#define SL_BENCHMARKS_LINE_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "spmd/base/base.h"

/* Memory shared by two threads, zeroed before the first measurement. */
struct sl_line {
    alignas(SL_CACHE_LINE) _Atomic uint32_t count;
};

/* Nanoseconds from one core to the other: the median of a few batches. Two threads call it, MEMBER 0 and 1, as often as
 * each other, with LINE and how often they have called it BEFORE. Each has a core of its own: they do not sleep. */
double sl_line_measure(struct sl_line *line, int member, uint32_t before);

#endif
