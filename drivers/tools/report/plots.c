/* plots.c - the table of plots. */
#include "drivers/tools/report/plots.h"

#include <math.h>

const struct report_plot report_plots[REPORT_PLOTS] = {
    {"loss", "Training loss", "mean of the batch", REPORT_LOSS, false, true},
    {"evaluation", "Evaluation loss", "on data that the run does not train on", REPORT_EVALUATION, false, false},
    {"lr", "Learning rate", "", REPORT_RATE, false, false},
    {"norm", "Gradient norm", "of all gradients, before they are clipped", REPORT_NORM, false, true},
    {"tokens", "Tokens a second", "without each run's first step", REPORT_TOKENS, true, true},
    {"samples", "Samples a second", "without each run's first step", REPORT_SAMPLES, true, true},
    {"ms", "Milliseconds a step", "without each run's first step", REPORT_MS, true, true},
    {"accuracy", "Training accuracy", "share of the batch", REPORT_ACCURACY, false, true},
    {"test-accuracy", "Test accuracy", "on data that the run does not train on", REPORT_TEST_ACCURACY, false, false},
    {"mfu", "Utilization", "the model's operations a second over those of products alone", REPORT_UTILIZATION, true,
     true},
    {"balance", "Load balance of experts", "1: all get the same share", REPORT_BALANCE, false, true},
};

int report_plot_begin(const struct report_plot *plot, const struct report_run *run) {
    return plot->warms_up && run->series[plot->quantity].count > 1;
}

bool report_plot_range(const struct report_plot *plot, const struct report_runs *runs, struct report_range *range) {
    *range = (struct report_range){INFINITY, -INFINITY, INFINITY, -INFINITY, INFINITY};
    for (int i = 0; i < runs->count; i++) {
        const struct report_series *series = &runs->run[i].series[plot->quantity];
        for (int k = report_plot_begin(plot, &runs->run[i]); k < series->count; k++) {
            const struct report_point *point = &series->point[k];
            range->first = fmin(range->first, point->step);
            range->last = fmax(range->last, point->step);
            if (isnan(point->value)) continue;
            range->low = fmin(range->low, point->value);
            range->high = fmax(range->high, point->value);
            if (point->value > 0) range->positive = fmin(range->positive, point->value);
        }
    }
    if (!(range->low <= range->high)) return false;
    if (isinf(range->positive)) range->positive = 0;
    if (range->last <= range->first) range->last = range->first + 1;
    /* Constant values get room above and below; numbers that differ only in their last digits do not fill the
     * height. */
    const double size = fmax(fabs(range->low), fabs(range->high)), least = fmax(size * 1e-6, 1e-100);
    if (range->high - range->low < least) {
        const double room = size > 0 ? size / 10 : 1;
        range->low -= room;
        range->high += room;
    }
    return true;
}

int report_plot_buckets(const struct report_runs *runs) {
    enum { ALL = 4000, MOST = REPORT_MOST_BUCKETS, LEAST = 40 };
    int series = 0;
    for (int p = 0; p < REPORT_PLOTS; p++)
        for (int i = 0; i < runs->count; i++) series += runs->run[i].series[report_plots[p].quantity].count > MOST;
    if (series == 0) return MOST;
    const int buckets = ALL / series;
    return buckets > MOST ? MOST : buckets < LEAST ? LEAST : buckets;
}
