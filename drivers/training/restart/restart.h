/* restart.h - restarts a run that dies: --restart N.
 *
 * The called process only watches: it starts itself as a child process, with engine mpi through the launcher, and
 * waits. If the child dies, it starts another, which resumes from the last step in memory (--protect) or the last
 * checkpoint. The next run takes nothing else from a dead run.
 *
 * On request (drivers/training/restart/control.h), it waits for the child's next step in memory, ends the child, and
 * starts it on another mesh.
 *
 * With --restart-mesh fewer, two runs in a row that died before saving a checkpoint mean that some processes are
 * missing for good. The next run has fewer replicas: the size of its data axis is the largest proper divisor of the
 * present size with which a dry run of the command line succeeds. When the launcher's file of hosts changes
 * (drivers/training/restart/hosts.h), it has as many of the replicas as the hosts take. */
#ifndef SL_DRIVERS_TRAINING_RESTART_RESTART_H
#define SL_DRIVERS_TRAINING_RESTART_RESTART_H

#include "drivers/common/checkpoints.h"

/* Whether the command line has --restart. */
static inline bool sl_restart_asked(const struct sl_options *options, const struct sl_checkpoint_options *checkpoints) {
    return !options->answered && checkpoints->restart > 0;
}

/* Runs the command line of OPTIONS, preceded by COMMAND ("train"; NULL: no command), until it has ended or has been
 * restarted checkpoints->restart times; COMMON has its mesh and engine. Reports each restart on stderr. A
 * terminating signal is passed to the run, and there are no more restarts. Returns the exit status of the last run,
 * or 128 plus the number of the signal that killed it; SL_BAD_INPUT if options do not fit, SL_FAILED if no process
 * can be started. */
int sl_restart(const struct sl_options *options, const char *command, const struct sl_checkpoint_options *checkpoints,
               const struct sl_common_options *common);

#endif
