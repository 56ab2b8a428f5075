/* engines.h - finds an engine by name at run time. */
#ifndef SL_COLLECTIVES_ENGINES_H
#define SL_COLLECTIVES_ENGINES_H

#include "spmd/engine.h"

SL_BEGIN_C

/* The built-in engine: a thread for each coordinate. It needs no other software. If a launcher starts a program with it
 * several times, each process runs the whole mesh by itself and writes the same files. The drivers report this; a
 * user's own program does not notice. */
extern const struct sl_engine_table sl_engine_local;

/* A process for each coordinate, started by a launcher (mpirun, srun). Built if MPI is found. */
extern const struct sl_engine_table sl_engine_mpi;

/* GPUs by NCCL: a thread for each coordinate; or a process for each, if a launcher has started several and the build
 * has MPI. Built if the build computes on GPUs and NCCL is found. */
extern const struct sl_engine_table sl_engine_nccl;

/* Seconds after which a waiting thread with its own core sleeps: about twice the time to wake a thread whose core has
 * gone to sleep. */
#define SL_AWAKE_SECONDS 50e-6

/* The engine called NAME; NULL if there is none. */
const struct sl_engine_table *sl_engine_find(const char *name);
/* Returns engine number I, even if it is not in this build; NULL after the last. */
const struct sl_engine_table *sl_engine_at(int i);

/* Fills in ENGINE with the engine called NAME ("local", "mpi", "nccl") and a timeout of 30 s. Sets `checked` if the
 * library is a debug build (CMAKE_BUILD_TYPE Debug); SHARDLOOP_CHECKED=1 in the environment sets it in any build, 0
 * clears it; examples and programs under development set it themselves. SL_BAD_INPUT lists the existing engines or, for
 * an engine outside this build, its CMake option. */
int sl_engine_open(struct sl_engine *engine, const char *name, struct sl_error *error);
/* The same with a timeout of TIMEOUT seconds, which also limits how long processes look for each other: programs do
 * longer work, such as reading data, after they have opened the engine. */
int sl_engine_open_within(struct sl_engine *engine, const char *name, double timeout, struct sl_error *error);

SL_END_C
#endif
