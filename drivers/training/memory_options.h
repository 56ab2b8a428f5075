/* memory_options.h - which options would make a run fit that does not: each is planned as the run was. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_OPTIONS_H
#define SL_DRIVERS_TRAINING_MEMORY_OPTIONS_H

#include "drivers/training/memory_check.h"

/* Before a run of JOB, whose coordinates are all of this process, and with DATA bytes that it takes beside what is
 * planned: as sl_memory_refuse. *PLANNED: whether it could be planned; where not, SL_OK says nothing. */
int sl_memory_refuse_early(const struct sl_job *job, const struct sl_engine *engine, double data, bool *planned,
                           struct sl_error *error);

#endif
