/* series.h - a quantity over steps, and its summaries. */
#ifndef SL_DRIVERS_TOOLS_REPORT_RUNS_SERIES_H
#define SL_DRIVERS_TOOLS_REPORT_RUNS_SERIES_H

#include "spmd/base/base.h"

struct report_point {
    double step, value; /* NaN: a gap */
};

/* Zero-initialize. Values are at most REPORT_LARGEST, so numbers computed from them are finite. */
struct report_series {
    int count, capacity;
    struct report_point *point; /* sorted by step, after report_series_order */
    bool ordered;               /* points were added in order */
    int gaps;                   /* points without a number, after report_series_order */
    double median;              /* as report_series_median, after report_series_order */
    double low, high;           /* the lowest and highest median of eight consecutive parts of the run */
};
#define REPORT_LARGEST 1e100
#define REPORT_LAST_STEP 1e15

/* Adds a point; returns false without memory. */
bool report_series_add(struct report_series *series, double step, double value);
/* Sorts by step and computes the medians. If a step occurs more than once, the point added last stays. Returns false
 * without memory. */
bool report_series_order(struct report_series *series);
void report_series_free(struct report_series *series);

/* Return the first of the lowest points, or if HIGHEST of the highest; and the last point; NULL: all are gaps. */
const struct report_point *report_series_best(const struct report_series *series, bool highest);
const struct report_point *report_series_last(const struct report_series *series);
/* Returns the median of all points except the first, unless it is the only one; NaN for none. Call it after
 * report_series_order. */
double report_series_median(const struct report_series *series);

/* Returns the uncertainty of a value: twice the standard deviation, estimated from differences of neighbours among
 * the last 32 points. 0 with fewer than two points. */
double report_series_noise(const struct report_series *series);

/* A range of neighbouring steps. */
struct report_bucket {
    double step;            /* the middle of its steps */
    double low, high, mean; /* NaN: all of its points are gaps */
};

/* Divides the steps from FIRST to LAST into at most BUCKETS equal parts, and writes the non-empty ones to BUCKET. If
 * there are at most as many points as buckets, each point has its own bucket. Points from index BEGIN on count.
 * Returns the number of buckets. */
int report_series_buckets(const struct report_series *series, int begin, double first, double last, int buckets,
                          struct report_bucket *bucket);

#endif
