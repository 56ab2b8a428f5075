/* memory_options.h - which options would make a run fit that does not: each is planned as the run was. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_OPTIONS_H
#define SL_DRIVERS_TRAINING_MEMORY_OPTIONS_H

#include "drivers/training/memory_check.h"

/* Before a run of JOB, whose coordinates are all of this process, and with DATA bytes that it takes beside what is
 * planned: as sl_memory_refuse. *PLANNED: whether it could be planned; where not, SL_OK says nothing. */
int sl_memory_refuse_early(const struct sl_job *job, const struct sl_engine *engine, double data, bool *planned,
                           struct sl_error *error);

/* The option, or the options of one kind, with which the coordinates that share FULLEST's device need least, after JOB
 * was planned as MEMORY says: TEXT [size], and what they need then. False: none makes them need less. */
bool sl_memory_least(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     int fullest, char *text, size_t size, double *bytes);

#endif
