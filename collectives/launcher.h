/* launcher.h - reads the number of processes and the rank from the environment set by mpirun and srun. */
#ifndef SL_COLLECTIVES_LAUNCHER_H
#define SL_COLLECTIVES_LAUNCHER_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_launch {
    const char *launcher; /* "mpirun", "srun"; NULL: no launcher has set the number of processes */
    int processes;        /* started by the launcher; 1 without one */
    int rank;             /* of this process; -1: not set */
    int here;             /* processes started on this host; 0: not set */
};

/* Environment variables for a process's rank, in order of precedence; the list ends with NULL. */
extern const char *const sl_launch_rank_names[];

/* Reads the environment of this process. A shell or batch script in a Slurm allocation has not been started by srun, so
 * it counts as a process without a launcher. */
struct sl_launch sl_launch_of_process(void);

SL_END_C
#endif
