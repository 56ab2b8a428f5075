/* curve.h - utilization over the batch, a curve for each schedule, with and without communication: how many
 * microbatches fill a pipeline, and how small they may become. */
#ifndef SL_DRIVERS_SCHEDULE_CURVE_H
#define SL_DRIVERS_SCHEDULE_CURVE_H

#include "drivers/common/output.h"
#include "drivers/schedule/study.h"

enum { SCHEDULE_MOST_CURVES = 8 };
enum schedule_curve_format { SCHEDULE_CURVE_TABLE, SCHEDULE_CURVE_SVG, SCHEDULE_CURVE_JSON };

struct schedule_curve_options {
    const char *names;           /* of the schedules, with commas between */
    struct schedule_model model; /* whose ranks have LOOPS layers; batches have 1, 2, 4, ... to MICROBATCHES of them */
    /* A machine file (drivers/machine/machine_file.h) gives costs instead: those of a product of a microbatch's rows
     * with a kernel [width, width] a layer. Batches then have 1, 2, 4, ... to BATCH rows, in as many microbatches as
     * are best. NULL: none. */
    const char *machine;
    int batch, width;
    enum schedule_curve_format format;
};

/* Utilization: the time that all rows would take at the rate of the best number of rows, over that of all ranks until
 * the step's end. SL_BAD_INPUT names a schedule that does not exist, or one that fits no batch. */
int schedule_curve(const struct schedule_curve_options *options, const struct sl_output *output,
                   struct sl_error *error);

#endif
