/* curve.h - utilization as a function of the batch, a curve per schedule, with and without communication: how many
 * microbatches fill a pipeline, and how small they can be. */
#ifndef SL_DRIVERS_SCHEDULE_CURVE_H
#define SL_DRIVERS_SCHEDULE_CURVE_H

#include "drivers/common/output.h"
#include "drivers/schedule/study.h"

enum { SCHEDULE_MOST_CURVES = 8 };
enum schedule_curve_format { SCHEDULE_CURVE_TABLE, SCHEDULE_CURVE_SVG, SCHEDULE_CURVE_JSON };

struct schedule_curve_options {
    const char *names;           /* names of the schedules, separated by commas */
    struct schedule_model model; /* its ranks have LOOPS layers; batches have 1, 2, 4, ... to MICROBATCHES
                                  * microbatches */
    /* A machine file (drivers/tools/machine/machine_file.h) for costs instead: of a product of a microbatch's rows with
     * a kernel [width, width] per layer. Batches then have 1, 2, 4, ... to BATCH rows, in the best number of
     * microbatches. NULL: none. */
    const char *machine;
    int batch, width;
    enum schedule_curve_format format;
};

/* Prints the utilization: the time of all rows at the rate of the best number of rows, relative to the time of all
 * ranks until the step's end. SL_BAD_INPUT names a schedule that is unknown, or that fits no batch. */
int schedule_curve(const struct schedule_curve_options *options, const struct sl_output *output,
                   struct sl_error *error);

#endif
