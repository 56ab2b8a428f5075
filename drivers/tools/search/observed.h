/* observed.h - a machine model from a run's profile, for runs without a machine file: measuring a machine may take
 * longer than the run. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_OBSERVED_H
#define SL_DRIVERS_TOOLS_SEARCH_OBSERVED_H

#include "drivers/tools/search/search.h"
#include "layers/modules/calls/profile.h"

/* Fills in MACHINE with the rates of JOB's coordinates in STEPS steps, from PROFILE [coordinates]; with 0 steps,
 * with typical rates. The dependence of rates on shapes, and rates that one run does not show, are typical of a
 * present core. Returns SL_BAD_INPUT or another status if the job cannot be predicted. */
int sl_observe(struct sl_machine *machine, struct sl_job *job, const struct sl_engine *engine,
               const struct sl_profile *profile, int64_t steps, struct sl_error *error);

#endif
