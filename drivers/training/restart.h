/* restart.h - a run that is started again when it dies: --restart N.
 *
 * The process that was called only watches: it starts itself again as a process of its own, under engine mpi through
 * the launcher, and waits. Where that one ends otherwise than a run ends, it starts another, which goes on from the
 * last checkpoint. So nothing of a run that has died is left for the next.
 *
 * With --restart-mesh fewer, two runs in a row that have died before they saved a checkpoint are a sign that some of
 * the processes are missing for good. The next run has fewer replicas: the size of its data axis is the largest divisor
 * of the one before with which a dry run of the command line succeeds. */
#ifndef SL_DRIVERS_TRAINING_RESTART_H
#define SL_DRIVERS_TRAINING_RESTART_H

#include "drivers/common/checkpoints.h"

/* Whether the command line asks for it. */
static inline bool sl_restart_asked(const struct sl_options *options, const struct sl_checkpoint_options *checkpoints) {
    return !options->answered && checkpoints->restart > 0;
}

/* Runs the command line of OPTIONS, which COMMAND precedes ("train"; NULL: nothing does), until it has ended or has
 * been started again checkpoints->restart times; COMMON has its mesh and engine. Says on stderr what has happened each
 * time. A signal that asks for the end reaches the run, which is then the last. Returns the exit status: that of the
 * last run, 128 and the signal's number where one has killed it; SL_BAD_INPUT where options do not fit, SL_FAILED where
 * no process can be started. */
int sl_restart(const struct sl_options *options, const char *command, const struct sl_checkpoint_options *checkpoints,
               const struct sl_common_options *common);

#endif
