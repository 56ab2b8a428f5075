/* scale.c - maps values to an axis. */
#include "drivers/tools/report/scale.h"

#include <math.h>
#include <stdio.h>

double report_scale_at(const struct report_scale *scale, double value) {
    const double low = scale->log ? log10(scale->low) : scale->low,
                 high = scale->log ? log10(scale->high) : scale->high;
    const double at = scale->log ? log10(fmax(value, scale->low)) : value;
    return scale->from + (at - low) / (high - low) * (scale->to - scale->from);
}

static int linear_ticks(const struct report_scale *scale, int wanted, double *tick) {
    const double least = (scale->high - scale->low) / wanted, power = pow(10, floor(log10(least)));
    const double step = least <= power       ? power
                        : least <= 2 * power ? 2 * power
                        : least <= 5 * power ? 5 * power
                                             : 10 * power;
    const double first = ceil(scale->low / step - 1e-9);
    int count = 0;
    while (count < REPORT_TICKS && (first + count) * step <= scale->high + 1e-9 * step) {
        tick[count] = (first + count) * step;
        count++;
    }
    return count;
}

/* Writes powers of ten, and, if they are few, their multiples in between. */
static int log_ticks(const struct report_scale *scale, int wanted, double *tick) {
    static const double between[] = {1, 2, 5};
    const double decades = log10(scale->high / scale->low);
    const int every = (int)fmax(1, ceil(decades / (wanted + 1))), parts = decades < 3 ? 3 : 1;
    int count = 0;
    for (double power = floor(log10(scale->low)); power <= log10(scale->high) && count < REPORT_TICKS; power += every) {
        for (int i = 0; i < parts && count < REPORT_TICKS; i++) {
            const double value = between[i] * pow(10, power);
            if (value >= scale->low && value <= scale->high) tick[count++] = value;
        }
    }
    return count;
}

int report_scale_ticks(const struct report_scale *scale, int wanted, double tick[REPORT_TICKS]) {
    return (scale->log ? log_ticks : linear_ticks)(scale, wanted, tick);
}

char *report_number(double value, char *text, size_t size) {
    static const struct {
        double unit;
        const char *letter;
    } units[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    for (int i = 0; i < 3; i++) {
        if (fabs(value) < 10 * units[i].unit || fabs(value) >= 1e13) continue;
        snprintf(text, size, "%.5g%s", value / units[i].unit, units[i].letter);
        return text;
    }
    snprintf(text, size, "%.5g", value);
    return text;
}
