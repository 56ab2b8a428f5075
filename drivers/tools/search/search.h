/* search.h - finds the fastest layouts of a job on a machine within its memory: --plan.
 *
 * All layouts are listed, planned and predicted; a layout that does not fit takes memory-saving steps until it fits.
 * Options given on the command line stay unchanged. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_SEARCH_H
#define SL_DRIVERS_TOOLS_SEARCH_SEARCH_H

#include "drivers/tools/search/layouts.h"
#include "drivers/tools/search/search_options.h"

/* Processes, for plans on paper, also in a build without MPI. */
extern const struct sl_engine_table sl_search_processes;

/* Searches layouts for JOB, described by the options COMMAND, over ENGINE. Prints the result on stdout, for --plan
 * auto on stderr, and writes options->save. With --plan auto this process then becomes the best run, and the
 * function returns only if that fails. SL_BAD_INPUT if no layout fits. */
int sl_search(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
              const struct sl_search_options *options, bool json, struct sl_error *error);

/* Predicts JOB itself in OWN, and the fastest layout on as many devices in BEST, with `fits` false if there is none.
 * MACHINE NULL: the machine named by the options. */
int sl_search_compare(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
                      const struct sl_search_options *options, const struct sl_machine *machine,
                      struct sl_prediction *own, struct sl_layout *best, struct sl_error *error);
/* Predicts JOB itself on MACHINE. */
int sl_search_predict(struct sl_job *job, const struct sl_engine *engine, const struct sl_machine *machine,
                      struct sl_prediction *own, struct sl_error *error);

#endif
