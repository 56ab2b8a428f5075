/* alone.c - replaces processes.c in builds without MPI: coordinates are threads of one process; processes started by a
 * launcher get an error with the build option. */
#include "collectives/nccl/engine.h"

const struct sl_nccl_hosts sl_nccl_processes = {0};

const struct sl_engine_table sl_engine_nccl_processes = {.name = "nccl", .missing = "SL_MPI"};
