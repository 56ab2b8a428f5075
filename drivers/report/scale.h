/* scale.h - from values to places on an axis, and the ticks beside it. */
#ifndef SL_DRIVERS_REPORT_SCALE_H
#define SL_DRIVERS_REPORT_SCALE_H

#include "spmd/base/base.h"

/* LOW comes to FROM, HIGH to TO. */
struct report_scale {
    double low, high, from, to;
    bool log; /* by powers; low is above 0 */
};

double report_scale_at(const struct report_scale *scale, double value);

enum { REPORT_TICKS = 16 };

/* Writes up to REPORT_TICKS numbers from the scale's low to its high to TICK, of 1, 2 or 5 times a power of ten apart,
 * or on a log scale such numbers themselves. About WANTED of them. Returns how many there are. */
int report_scale_ticks(const struct report_scale *scale, int wanted, double tick[REPORT_TICKS]);

/* VALUE as a tick is labelled: 25k, 0.001, 1e-7. Returns TEXT. */
char *report_number(double value, char *text, size_t size);

#endif
