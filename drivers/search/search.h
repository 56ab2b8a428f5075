/* search.h - finds the layouts of a job that a machine would run fastest in the memory that there is: --plan.
 *
 * All layouts are listed, planned and predicted; those that do not fit take steps that save memory until they do. What
 * the user has given on the command line stays as it is. */
#ifndef SL_DRIVERS_SEARCH_SEARCH_H
#define SL_DRIVERS_SEARCH_SEARCH_H

#include "drivers/search/layouts.h"
#include "drivers/search/search_options.h"

/* Searches for JOB, which the options COMMAND describe, and which would run over ENGINE. Prints what it finds on
 * stdout, for --plan auto on stderr, and writes options->save. With --plan auto this process then becomes that run, and
 * the function returns only where it cannot. SL_BAD_INPUT where nothing fits. */
int sl_search(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
              const struct sl_search_options *options, bool json, struct sl_error *error);

/* Predicts JOB itself, in OWN, and the fastest layout on as many devices, in BEST, which does not fit where there is
 * none. MACHINE NULL: the one that the options name. */
int sl_search_compare(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
                      const struct sl_search_options *options, const struct sl_machine *machine,
                      struct sl_prediction *own, struct sl_layout *best, struct sl_error *error);
/* Predicts JOB itself, on MACHINE. */
int sl_search_predict(struct sl_job *job, const struct sl_engine *engine, const struct sl_machine *machine,
                      struct sl_prediction *own, struct sl_error *error);

#endif
