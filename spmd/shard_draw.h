/* shard_draw.h - draws which coordinates hold which block of an array.
 *
 *     w: 8 x 6, spec tensor,-; blocks of 4 x 6
 *           0:6
 *         ┌─────┐
 *     0:4 │ 0,2 │     coordinates 0 and 2 hold the same block: they differ along an axis that the spec leaves out
 *         ├─────┤
 *     4:8 │ 1,3 │
 *         └─────┘
 *
 * Columns are the last dim, rows all dims before it. A dim of k segments has the pieces of all of them, in the order in
 * which they lie in the array; where there are too many, those of one shard are drawn as one. */
#ifndef SL_SPMD_SHARD_DRAW_H
#define SL_SPMD_SHARD_DRAW_H

#include <stdio.h>

#include "spmd/spec.h"

SL_BEGIN_C

struct sl_sharding {
    const char *name; /* of the array */
    const struct sl_mesh *mesh;
    const struct sl_spec *spec;
    int dims;
    const size_t *shape; /* [dims] of the whole array */
};

enum sl_drawing {
    SL_DRAW_TEXT,
    SL_DRAW_COLOURS, /* text for a terminal: equal colours, equal block */
    SL_DRAW_SVG,     /* one document with all of them */
};

/* Draws COUNT arrays below each other, each under its name, shape and spec. SL_BAD_INPUT, before anything is drawn,
 * where a spec does not fit its mesh and shape, as by sl_spec_local_shape. Whether FILE could be written, its user
 * asks. */
int sl_sharding_draw(FILE *file, const struct sl_sharding *sharding, int count, enum sl_drawing drawing,
                     struct sl_error *error);

/* The pieces of COORDINATE's shard along DIM, one in each segment: elements [*BEGIN, *END) of piece number SEGMENT. */
int sl_sharding_segments(const struct sl_sharding *sharding, int dim);
void sl_sharding_slice(const struct sl_sharding *sharding, int coordinate, int dim, int segment, size_t *begin,
                       size_t *end);

/* Writes "8 x 6", "scalar" where there are no dims; returns TEXT. */
char *sl_shape_print(int dims, const size_t *shape, char *text, size_t size);

SL_END_C
#endif
