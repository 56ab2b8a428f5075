/* missing.c - replaces engine.c in builds without MPI: opening the engine reports the build option. */
#include "collectives/engines.h"

const struct sl_engine_table sl_engine_mpi = {.name = "mpi", .missing = "SL_MPI"};
