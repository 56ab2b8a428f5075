/* series.h - a quantity of each step, and the few numbers that stand for many. */
#ifndef SL_DRIVERS_REPORT_SERIES_H
#define SL_DRIVERS_REPORT_SERIES_H

#include "spmd/base/base.h"

struct report_point {
    double step, value; /* NaN: the step has no such number, which is a gap */
};

/* Zero-initialize. Its numbers are at most REPORT_LARGEST, so that what is computed from them is a number, too. */
struct report_series {
    int count, capacity;
    struct report_point *point; /* by step, after report_series_order */
    bool ordered;               /* as they were added */
    int gaps;                   /* points without a number, after report_series_order */
    double median;              /* after report_series_order; report_series_median says of what */
    double low, high;           /* the lowest and highest median of eight parts of the run, one after another */
};
#define REPORT_LARGEST 1e100
#define REPORT_LAST_STEP 1e15

/* False without memory. */
bool report_series_add(struct report_series *series, double step, double value);
/* Sorts by step; finds the median. Of a step that is there more than once, what was added last stays. False without
 * memory. */
bool report_series_order(struct report_series *series);
void report_series_free(struct report_series *series);

/* The first point whose value no other is below, or above where HIGHEST; the last one; NULL: all are gaps. */
const struct report_point *report_series_best(const struct report_series *series, bool highest);
const struct report_point *report_series_last(const struct report_series *series);
/* Without the first point, unless it is the only one; NaN where there is none. After report_series_order. */
double report_series_median(const struct report_series *series);

/* By how much a value may be off by chance: twice the standard deviation that the differences of neighbours show among
 * the last 32 points. 0 where there are no two. */
double report_series_noise(const struct report_series *series);

/* All points of some neighbouring steps. */
struct report_bucket {
    double step;            /* the middle of its points' */
    double low, high, mean; /* NaN: all of its points are gaps */
};

/* Divides the steps from FIRST to LAST into at most BUCKETS parts of equal length and writes those that have points to
 * BUCKET. Where there are no more points than buckets, each is a bucket of its own. Points from BEGIN on count. Returns
 * how many were written. */
int report_series_buckets(const struct report_series *series, int begin, double first, double last, int buckets,
                          struct report_bucket *bucket);

#endif
