/* scale.h - maps values to positions on an axis, and computes its ticks. */
#ifndef SL_DRIVERS_TOOLS_REPORT_SCALE_H
#define SL_DRIVERS_TOOLS_REPORT_SCALE_H

#include "spmd/base/base.h"

/* Maps LOW to FROM, HIGH to TO. */
struct report_scale {
    double low, high, from, to;
    bool log; /* logarithmic; low is above 0 */
};

double report_scale_at(const struct report_scale *scale, double value);

enum { REPORT_TICKS = 16 };

/* Writes to TICK up to REPORT_TICKS numbers between the scale's low and high, about WANTED: with distances of 1, 2
 * or 5 times a power of ten, or, on a log scale, such numbers themselves. Returns their number. */
int report_scale_ticks(const struct report_scale *scale, int wanted, double tick[REPORT_TICKS]);

/* Writes VALUE as a tick's label: 25k, 0.001, 1e-7. Returns TEXT. */
char *report_number(double value, char *text, size_t size);

#endif
