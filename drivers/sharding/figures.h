/* figures.h - figures of parallelism: arrays with the specs used by this library's modules. */
#ifndef SL_DRIVERS_SHARDING_FIGURES_H
#define SL_DRIVERS_SHARDING_FIGURES_H

#include "spmd/base/error.h"
#include "spmd/shard_draw.h"

enum { FIGURE_MOST_ARRAYS = 6 };

/* Arrays of a figure; sharding points into spec and shape. */
struct figure {
    int arrays;
    struct sl_sharding sharding[FIGURE_MOST_ARRAYS];
    struct sl_spec spec[FIGURE_MOST_ARRAYS];
    size_t shape[FIGURE_MOST_ARRAYS][SL_MAX_DIMS];
};

/* Returns the mesh of figure number I, from 0; NULL after the last. */
const char *figure_mesh(int i);
/* Makes figure number I on MESH; SL_BAD_INPUT if MESH lacks axes of the figure's own mesh. */
int figure_make(struct figure *figure, int i, const struct sl_mesh *mesh, struct sl_error *error);

#endif
