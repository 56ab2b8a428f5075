/* memory_check.h - whether a run's memory is there, asked before anything large is taken. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_CHECK_H
#define SL_DRIVERS_TRAINING_MEMORY_CHECK_H

#include "drivers/memory/fit.h"
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
/* The same of values that nobody trains. */
double sl_memory_of_values(const struct sl_job *job, double parameters);

/* SL_BAD_INPUT where NEED, which all coordinates of this process have together and which sizes alone tell, does not
 * fit; the line tells both, and which options would help, if that can be planned. Of the samples, UNPLANNED bytes are
 * none of a coordinate's. JOB has its schedule. */
int sl_memory_check(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory_need *need,
                    double unplanned, struct sl_error *error);

/* Collective over the mesh: gathers in MEMORY [coordinates] what all workers, planned, will take. *FITS becomes the
 * same for all. Where it is false, the program returns SL_OK, and after the run the caller asks sl_memory_refuse. */
int sl_memory_plan(struct sl_worker *worker, struct sl_memory *memory, bool *fits);

/* After a run of JOB: SL_OK, unless MEMORY did not fit. Then SL_BAD_INPUT; the line tells what it needs, what there is,
 * and up to three options, planned like JOB itself, with which it would fit (memory_options.c). */
int sl_memory_refuse(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     struct sl_error *error);

/* After a run of JOB that ended with ERROR: where a device has refused memory, the line goes on with what it had free,
 * what its coordinates plan to take, by category, and the option that saves most of it. Returns ERROR's status. */
int sl_memory_explain(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                      struct sl_error *error);

#endif
