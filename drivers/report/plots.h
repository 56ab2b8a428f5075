/* plots.h - the plots over steps that a report has: which quantity each shows, and how it is named. */
#ifndef SL_DRIVERS_REPORT_PLOTS_H
#define SL_DRIVERS_REPORT_PLOTS_H

#include "drivers/report/runs.h"

struct report_plot {
    const char *name; /* on the command line */
    const char *title, *about;
    enum report_quantity quantity;
    bool warms_up; /* a run's first step, which touches memory and generates code, is left out */
    bool noisy;    /* smoothing it makes sense */
};

enum { REPORT_PLOTS = 11, REPORT_MOST_BUCKETS = 360 };
extern const struct report_plot report_plots[REPORT_PLOTS];
/* Their names, in order, with | between them. */
#define REPORT_PLOT_NAMES "loss|evaluation|lr|norm|tokens|samples|ms|accuracy|test-accuracy|mfu|balance"

/* What a plot spans. */
struct report_range {
    double first, last; /* steps */
    double low, high;   /* values; high > low */
    double positive;    /* the lowest value above 0; 0: there is none */
};

/* The first point of RUN that PLOT shows. */
int report_plot_begin(const struct report_plot *plot, const struct report_run *run);
/* False: no run has a number to show. */
bool report_plot_range(const struct report_plot *plot, const struct report_runs *runs, struct report_range *range);

/* How many buckets a series has, at most REPORT_MOST_BUCKETS, so that a page stays small however many runs it shows. */
int report_plot_buckets(const struct report_runs *runs);

#endif
