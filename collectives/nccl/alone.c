/* alone.c - stands in for processes.c in builds without MPI: coordinates are threads of one process, and what
 * a launcher has started says what to do. */
#include "collectives/nccl/engine.h"

const struct sl_nccl_hosts sl_nccl_processes = {0};

const struct sl_engine_table sl_engine_nccl_processes = {.name = "nccl", .missing = "SL_MPI"};
