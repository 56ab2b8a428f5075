/* paper.h - one coordinate of a mesh without its peers: for plans, which compute sizes and move no data.
 *
 * A program plans in the same way on every coordinate, whoever the others are, and so it may plan on one at a time: in
 * the caller's thread, for meshes of engines that are not here. Calls end at once. Peers give nothing: of what is
 * gathered the coordinate's own block alone is written, and sums are its own summand. Channels cannot be opened. */
#ifndef SL_COLLECTIVES_PAPER_H
#define SL_COLLECTIVES_PAPER_H

#include "spmd/engine.h"

SL_BEGIN_C

/* Runs PROGRAM at COORDINATE of MESH as on LIKE: coordinates read each other's memory, and channels have slots at both
 * ends, where LIKE's do. Returns PROGRAM's status; ERROR has its message. */
int sl_paper_run(const struct sl_mesh *mesh, const struct sl_engine *like, int coordinate, sl_program *program,
                 void *arg, struct sl_error *error);

SL_END_C
#endif
