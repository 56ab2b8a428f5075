/* series.c - a quantity over steps. */
#include "drivers/tools/report/runs/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool report_series_add(struct report_series *series, double step, double value) {
    if (series->count == series->capacity) {
        const int capacity = series->capacity ? 2 * series->capacity : 256;
        struct report_point *point = realloc(series->point, (size_t)capacity * sizeof *point);
        if (!point) return false;
        series->point = point;
        series->capacity = capacity;
    }
    series->ordered = series->count == 0 || (series->ordered && series->point[series->count - 1].step < step);
    series->point[series->count++] = (struct report_point){step, value};
    return true;
}

/* ---- order ---- */

struct numbered {
    struct report_point point;
    int number;
};

static int by_step(const void *left, const void *right) {
    const struct numbered *a = left, *b = right;
    if (a->point.step != b->point.step) return a->point.step < b->point.step ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static bool sort(struct report_series *series) {
    struct numbered *list = malloc((size_t)series->count * sizeof *list);
    if (!list) return false;
    for (int i = 0; i < series->count; i++) list[i] = (struct numbered){series->point[i], i};
    qsort(list, (size_t)series->count, sizeof *list, by_step);
    int kept = 0;
    for (int i = 0; i < series->count; i++) {
        if (kept && series->point[kept - 1].step == list[i].point.step) kept--;
        series->point[kept++] = list[i].point;
    }
    series->count = kept;
    free(list);
    return true;
}

static int by_value(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Returns the median; sorts the values. */
static double median_of(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count ? (value[(count - 1) / 2] + value[count / 2]) / 2 : NAN;
}

static bool find_medians(struct report_series *series) {
    enum { PARTS = 8 };
    double *value = malloc((size_t)series->count * sizeof *value);
    int count = 0;
    if (!value) return false;
    for (int i = series->count > 1; i < series->count; i++)
        if (!isnan(series->point[i].value)) value[count++] = series->point[i].value;
    series->low = series->high = NAN;
    for (int part = 0; part < PARTS; part++) {
        const int begin = (int)((long long)count * part / PARTS), end = (int)((long long)count * (part + 1) / PARTS);
        const double median = median_of(value + begin, end - begin);
        series->low = fmin(series->low, median);
        series->high = fmax(series->high, median);
    }
    series->median = median_of(value, count);
    free(value);
    return true;
}

bool report_series_order(struct report_series *series) {
    if (series->count && !series->ordered && !sort(series)) return false;
    if (series->count && !find_medians(series)) return false;
    series->ordered = true;
    series->gaps = 0;
    for (int i = 0; i < series->count; i++) series->gaps += isnan(series->point[i].value);
    return true;
}

void report_series_free(struct report_series *series) {
    free(series->point);
    *series = (struct report_series){0};
}

/* ---- summaries ---- */

const struct report_point *report_series_best(const struct report_series *series, bool highest) {
    const struct report_point *best = NULL;
    for (int i = 0; i < series->count; i++) {
        const struct report_point *point = &series->point[i];
        if (isnan(point->value)) continue;
        if (!best || (highest ? point->value > best->value : point->value < best->value)) best = point;
    }
    return best;
}

const struct report_point *report_series_last(const struct report_series *series) {
    for (int i = series->count - 1; i >= 0; i--)
        if (!isnan(series->point[i].value)) return &series->point[i];
    return NULL;
}

double report_series_median(const struct report_series *series) { return series->count ? series->median : NAN; }

double report_series_noise(const struct report_series *series) {
    enum { NEIGHBOURS = 31 };
    double squares = 0, next = NAN;
    int count = 0;
    for (int i = series->count - 1; i >= 0 && count < NEIGHBOURS; i--) {
        const double value = series->point[i].value;
        if (isnan(value)) continue;
        if (!isnan(next)) squares += (next - value) * (next - value), count++;
        next = value;
    }
    return count ? 2 * sqrt(squares / (2 * count)) : 0;
}

/* ---- buckets ---- */

/* Joins the points from BEGIN to END - 1. */
static struct report_bucket bucket_of(const struct report_series *series, int begin, int end) {
    const struct report_point *point = series->point;
    struct report_bucket bucket = {(point[begin].step + point[end - 1].step) / 2, INFINITY, -INFINITY, 0};
    int count = 0;
    for (int i = begin; i < end; i++) {
        if (isnan(point[i].value)) continue;
        bucket.low = fmin(bucket.low, point[i].value);
        bucket.high = fmax(bucket.high, point[i].value);
        bucket.mean += point[i].value;
        count++;
    }
    if (!count) bucket.low = bucket.high = NAN;
    bucket.mean = count ? fmin(fmax(bucket.mean / count, bucket.low), bucket.high) : NAN;
    return bucket;
}

int report_series_buckets(const struct report_series *series, int begin, double first, double last, int buckets,
                          struct report_bucket *bucket) {
    const bool all = series->count - begin <= buckets;
    const double length = (last - first) / buckets;
    int count = 0;
    for (int i = begin, end; i < series->count && count < buckets; i = end) {
        end = i + 1;
        const double limit = first + (floor((series->point[i].step - first) / length) + 1) * length;
        while (!all && end < series->count && (series->point[end].step < limit || count == buckets - 1)) end++;
        bucket[count++] = bucket_of(series, i, end);
    }
    return count;
}
