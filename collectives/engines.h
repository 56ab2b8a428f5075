/* engines.h - choosing an engine by name at run time. */
#ifndef SL_COLLECTIVES_ENGINES_H
#define SL_COLLECTIVES_ENGINES_H

#include "spmd/engine.h"

SL_BEGIN_C

/* The embedded engine: a thread per coordinate, nothing to install. */
extern const struct sl_engine_table sl_engine_local;

/* A process per coordinate, as a launcher (mpirun, srun) has started them. Built where MPI is found. */
extern const struct sl_engine_table sl_engine_mpi;

/* GPUs, by NCCL: a thread per coordinate, or, where a launcher has started several processes and the build has MPI, a
 * process. Built where it computes on GPUs and NCCL is found. */
extern const struct sl_engine_table sl_engine_nccl;

/* The engine called NAME, or NULL. */
const struct sl_engine_table *sl_engine_find(const char *name);

/* Fills ENGINE in with the engine called NAME ("local", "mpi", "nccl"), a timeout of 30 s, checked in debug builds.
 * SL_BAD_INPUT names the engines there are, or for one left out of this build the CMake option that builds it. */
int sl_engine_open(struct sl_engine *engine, const char *name, struct sl_error *error);

SL_END_C
#endif
