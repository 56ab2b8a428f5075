/* ranges.h - short texts for sets of a mesh's coordinates, for messages and tables: "data=0-15, pipe=3". */
#ifndef SL_SPMD_RANGES_H
#define SL_SPMD_RANGES_H

#include "spmd/mesh.h"
#include "spmd/set.h"

SL_BEGIN_C

/* Writes the coordinates of SET (spmd/set.h), which is not empty. If SET holds all combinations of its indices along
 * each axis, writes these indices, otherwise coordinate numbers ("0-5, 8"). A text that is too long is cut and ends
 * with "...". Returns TEXT. */
char *sl_mesh_describe_set(const struct sl_mesh *mesh, const uint64_t *set, char *text, size_t size);

SL_END_C
#endif
