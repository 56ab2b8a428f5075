/* memory_check.h - whether this machine can hold a run, asked before anything large is taken. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_CHECK_H
#define SL_DRIVERS_TRAINING_MEMORY_CHECK_H

#include "drivers/training/job.h"

/* Bytes of all coordinates together; double, for sizes may be absurd. */
struct sl_memory_need {
    double parameters;  /* with gradients and the optimizer's state */
    double activations; /* and what else coordinates compute with */
    double data;        /* samples */
};

/* What PARAMETERS parameters take: values, also rounded ones, and where JOB trains gradients and the optimizer's
 * state. */
double sl_memory_of_parameters(const struct sl_job *job, double parameters);

/* SL_BAD_INPUT where NEED is more than this machine's memory; the line tells both. */
int sl_memory_check(const struct sl_memory_need *need, struct sl_error *error);

/* Collective over the mesh: the same for what the workers have planned. */
int sl_memory_check_planned(const struct sl_worker *worker);

#endif
