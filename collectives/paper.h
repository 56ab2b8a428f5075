/* paper.h - one coordinate of a mesh without its peers: for plans, which compute sizes and move no data.
 *
 * A program's plan does not depend on its peers, so it can be computed for one coordinate at a time: in the caller's
 * thread, even for meshes of engines outside this build. Calls end at once. Peers send nothing: a gather writes only
 * the coordinate's own block, and a sum is its own summand. Channels cannot be opened. */
#ifndef SL_COLLECTIVES_PAPER_H
#define SL_COLLECTIVES_PAPER_H

#include "spmd/engine.h"

SL_BEGIN_C

/* Runs PROGRAM at COORDINATE of MESH with the properties of engine LIKE: whether coordinates read each other's memory,
 * and whether channels have slots at both ends. Returns PROGRAM's status; on failure ERROR has the message. */
int sl_paper_run(const struct sl_mesh *mesh, const struct sl_engine *like, int coordinate, sl_program *program,
                 void *arg, struct sl_error *error);

SL_END_C
#endif
