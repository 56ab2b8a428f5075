/* curve_internal.h - the points of the curves: curve.c computes them, curve_print.c prints them. */
#ifndef SL_DRIVERS_SCHEDULE_CURVE_INTERNAL_H
#define SL_DRIVERS_SCHEDULE_CURVE_INTERNAL_H

#include "drivers/schedule/curve.h"
#include "spmd/schedule/registry.h"

enum { SCHEDULE_MOST_BATCHES = 32 };

/* A batch; utilization below 0: the schedule does not fit. */
struct curve_point {
    double utilization;
    int microbatches;
};

struct curve {
    const struct sl_schedule_kind *kind;
    int loops;
    struct curve_point free[SCHEDULE_MOST_BATCHES], sent[SCHEDULE_MOST_BATCHES]; /* without and with communication */
};

struct curves {
    const struct schedule_curve_options *options;
    int count, batches;
    bool sends; /* there are curves with communication */
    struct curve curve[SCHEDULE_MOST_CURVES];
    int batch[SCHEDULE_MOST_BATCHES]; /* microbatches, or rows with a machine file */
};

int schedule_curves_print(const struct curves *curves, const struct sl_output *output, struct sl_error *error);

#endif
