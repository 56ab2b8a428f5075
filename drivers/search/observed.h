/* observed.h - a machine as a run has shown it: for runs that are given none, and would take longer to measure one than
 * they last. */
#ifndef SL_DRIVERS_SEARCH_OBSERVED_H
#define SL_DRIVERS_SEARCH_OBSERVED_H

#include "drivers/search/search.h"
#include "layers/modules/profile.h"

/* MACHINE has the rates at which JOB's coordinates have computed in STEPS steps, of which PROFILE [coordinates] tells.
 * Of no steps the rates are typical. How rates depend on shapes, and what cannot be seen in one run, is typical of a
 * core of our time. SL_BAD_INPUT, or another status, where the job cannot be predicted. */
int sl_observe(struct sl_machine *machine, struct sl_job *job, const struct sl_engine *engine,
               const struct sl_profile *profile, int64_t steps, struct sl_error *error);

#endif
