/* ranges.h - many of a mesh's coordinates in few words, for messages and tables: "data=0-15, pipe=3". */
#ifndef SL_SPMD_RANGES_H
#define SL_SPMD_RANGES_H

#include "spmd/mesh.h"
#include "spmd/set.h"

SL_BEGIN_C

/* Writes the coordinates in SET (spmd/set.h), which has one at least: the indices along each axis, if SET holds all
 * that have one of these along each, and their numbers ("0-5, 8") otherwise. What does not fit is cut, and "..." says
 * so. Returns TEXT. */
char *sl_mesh_describe_set(const struct sl_mesh *mesh, const uint64_t *set, char *text, size_t size);

SL_END_C
#endif
