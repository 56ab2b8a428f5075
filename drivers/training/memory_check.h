/* memory_check.h - compares a run's memory with the available memory, before large allocations. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_CHECK_H
#define SL_DRIVERS_TRAINING_MEMORY_CHECK_H

#include "drivers/memory/fit.h"
#include "drivers/training/job.h"

/* Bytes of all coordinates together; double, because sizes may be absurdly large. */
struct sl_memory_need {
    double parameters;  /* with gradients and optimizer state */
    double activations; /* and other buffers for computing */
    double data;        /* samples */
};

/* Returns the bytes of PARAMETERS parameters: values, rounded copies and, if JOB trains, gradients and optimizer
 * state. */
double sl_memory_of_parameters(const struct sl_job *job, double parameters);
/* The same for values of untrained parameters. */
double sl_memory_of_values(const struct sl_job *job, double parameters);

/* Checks NEED, computed from sizes alone for all coordinates of this process, against the available memory. Returns
 * SL_BAD_INPUT if it does not fit; the message has both figures and, if they can be planned, helpful options.
 * UNPLANNED bytes of the samples belong to no coordinate. JOB has its schedule. */
int sl_memory_check(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory_need *need,
                    double unplanned, struct sl_error *error);

/* Collective over the mesh: gathers in MEMORY [coordinates] the bytes of all planned workers. *FITS becomes the same
 * for all. If it is false, the program returns SL_OK, and the caller calls sl_memory_refuse after the run. */
int sl_memory_plan(struct sl_worker *worker, struct sl_memory *memory, bool *fits);

/* Call it after a run of JOB. Returns SL_OK if MEMORY fitted, otherwise SL_BAD_INPUT; the message has the needed
 * bytes, the available bytes, and up to three options, each planned like JOB, to make it fit (memory_options.c). */
int sl_memory_refuse(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     struct sl_error *error);

/* Call it after a run of JOB that ended with ERROR. If a device has refused memory, adds to the message the free
 * bytes of the device, the planned bytes of its coordinates by category, and the option with the largest saving.
 * Returns ERROR's status. */
int sl_memory_explain(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                      struct sl_error *error);

#endif
