/* launcher.c - reads the environment variables set by a launcher. */
#include "collectives/launcher.h"

#include <stdlib.h>

/* Open MPI's mpirun, MPICH's, and srun; the first variable set counts, since mpirun may itself use srun. SLURM_NTASKS
 * is not used: it is also set for a shell in an allocation. */
static const struct {
    const char *size, *launcher;
} sizes[] = {{"OMPI_COMM_WORLD_SIZE", "mpirun"}, {"PMI_SIZE", "mpirun"}, {"SLURM_STEP_NUM_TASKS", "srun"}};
enum { SIZES = sizeof sizes / sizeof *sizes };

const char *const sl_launch_rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};

/* Slurm's value is "4(x2)" for two hosts with 4 each. */
static const char *const here_names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"};
enum { HERE = sizeof here_names / sizeof *here_names };

struct sl_launch sl_launch_of_process(void) {
    struct sl_launch launch = {.processes = 1, .rank = -1};
    const char *rank = NULL, *size = NULL, *here = NULL;
    for (int i = 0; sl_launch_rank_names[i] && !rank; i++) rank = getenv(sl_launch_rank_names[i]);
    if (rank) launch.rank = atoi(rank);
    for (int i = 0; i < SIZES && !size; i++) {
        size = getenv(sizes[i].size);
        if (size) launch.launcher = sizes[i].launcher;
    }
    if (size && atoi(size) > 1) launch.processes = atoi(size);
    for (int i = 0; i < HERE && !here; i++) here = getenv(here_names[i]);
    if (here && atoi(here) > 0) launch.here = atoi(here);
    return launch;
}
