/* same_process.h - between a watcher (drivers/training/restart/restart.h) and the process of its run: starts the
 * coordinates of a failed run again in their process, with engine local.
 *
 * When the coordinates have ended because one has failed, the process tells its watcher why, through a socket that it
 * has inherited, and waits. The watcher answers with the place from which the run goes on, or closes the socket: the
 * process then ends as if it were not watched. */
#ifndef SL_DRIVERS_TRAINING_RESTART_SAME_PROCESS_H
#define SL_DRIVERS_TRAINING_RESTART_SAME_PROCESS_H

#include "layers/formats/files/draft.h"

/* ---- the watcher ---- */

/* Makes the two ends: the watcher's, and the one for its process. Returns false without them. */
bool sl_same_process_open(int ends[2]);
/* Call it in the new process, before exec: this program inherits END. */
void sl_same_process_inherit(int end);
/* Reads the process's message, the REASON of its failure. Returns false if the process has ended. */
bool sl_same_process_hear(int end, struct sl_error *reason);
/* Lets the process go on from PLACE, a checkpoint or an index of a step in memory; "": where its command line says. */
void sl_same_process_answer(int end, const char *place);

/* ---- its process ---- */

/* Whether this process has inherited an end. Call it before other threads run. */
bool sl_same_process_is_watched(void);
/* Tells the watcher the REASON of a failure, and waits for its answer. Returns whether the run goes on from PLACE. */
bool sl_same_process_asks(const struct sl_error *reason, char place[SL_MAX_PATH]);

#endif
