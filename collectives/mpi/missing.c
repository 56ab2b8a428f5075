/* missing.c - stands in for engine.c in builds without MPI, so that asking for it says what to do. */
#include "collectives/engines.h"

const struct sl_engine_table sl_engine_mpi = {.name = "mpi", .missing = "SL_MPI"};
