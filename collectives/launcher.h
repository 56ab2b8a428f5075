/* launcher.h - what mpirun and srun have put into the environment of the processes that they have started. */
#ifndef SL_COLLECTIVES_LAUNCHER_H
#define SL_COLLECTIVES_LAUNCHER_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_launch {
    const char *launcher; /* "mpirun", "srun"; NULL: none has told how many there are */
    int processes;        /* that it has started; 1 without one */
    int rank;             /* of this process; -1: none has told one */
    int here;             /* processes that it has started on this host; 0: it has not told */
};

/* The variables that hold a process's rank, the one that counts first; NULL ends them. */
extern const char *const sl_launch_rank_names[];

/* Of this process. A shell or a batch script in an allocation of Slurm's is none that srun has started. */
struct sl_launch sl_launch_of_process(void);

SL_END_C
#endif
