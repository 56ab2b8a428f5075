/* memory_options.h - finds options to make a too large run fit, by planning the job with each. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_OPTIONS_H
#define SL_DRIVERS_TRAINING_MEMORY_OPTIONS_H

#include "drivers/training/memory_check.h"

/* Call it before a run of JOB if all its coordinates are in this process; DATA are bytes besides the planned ones.
 * Works as sl_memory_refuse. *PLANNED: whether the job could be planned; if not, the returned SL_OK means nothing. */
int sl_memory_refuse_early(const struct sl_job *job, const struct sl_engine *engine, double data, bool *planned,
                           struct sl_error *error);

/* Finds the option, or the options of one kind, with which the coordinates on FULLEST's device need least; MEMORY is
 * JOB's plan. Writes it to TEXT [size], and the bytes needed then to BYTES. Returns false if no option needs less. */
bool sl_memory_least(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     int fullest, char *text, size_t size, double *bytes);

#endif
