/* plots.h - the table of a report's plots over steps. */
#ifndef SL_DRIVERS_TOOLS_REPORT_PLOTS_H
#define SL_DRIVERS_TOOLS_REPORT_PLOTS_H

#include "drivers/tools/report/runs/runs.h"

struct report_plot {
    const char *name; /* on the command line */
    const char *title, *about;
    enum report_quantity quantity;
    bool warms_up; /* a run's first step is left out: it touches memory and generates code */
    bool noisy;    /* smoothing is useful */
};

enum { REPORT_PLOTS = 11, REPORT_MOST_BUCKETS = 360 };
extern const struct report_plot report_plots[REPORT_PLOTS];
/* Names of the plots, in order, separated by |. */
#define REPORT_PLOT_NAMES "loss|evaluation|lr|norm|tokens|samples|ms|accuracy|test-accuracy|mfu|balance"

/* Range of a plot. */
struct report_range {
    double first, last; /* steps */
    double low, high;   /* values; high > low */
    double positive;    /* the lowest value above 0; 0: none */
};

/* Returns the index of the first point of RUN in PLOT. */
int report_plot_begin(const struct report_plot *plot, const struct report_run *run);
/* Computes the range; returns false if no run has a number for it. */
bool report_plot_range(const struct report_plot *plot, const struct report_runs *runs, struct report_range *range);

/* Returns the number of buckets per series, at most REPORT_MOST_BUCKETS, so a page with many runs stays small. */
int report_plot_buckets(const struct report_runs *runs);

#endif
