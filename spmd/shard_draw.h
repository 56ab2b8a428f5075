/* shard_draw.h - draws the blocks of an array, and each block's coordinates.
 *
 *     w: 8 x 6, spec tensor,-; blocks of 4 x 6
 *           0:6
 *         ┌─────┐
 *     0:4 │ 0,2 │     coordinates 0 and 2 hold the same block: they differ along an axis the spec leaves out
 *         ├─────┤
 *     4:8 │ 1,3 │
 *         └─────┘
 *
 * The last dim is drawn as columns, all dims before it as rows. A dim of k segments shows the pieces of all segments,
 * in their order in the array. If there are too many to draw, the pieces of a shard are drawn as one. */
#ifndef SL_SPMD_SHARD_DRAW_H
#define SL_SPMD_SHARD_DRAW_H

#include <stdio.h>

#include "spmd/spec.h"

SL_BEGIN_C

struct sl_sharding {
    const char *name; /* name of the array */
    const struct sl_mesh *mesh;
    const struct sl_spec *spec;
    int dims;
    const size_t *shape; /* [dims] of the whole array */
};

enum sl_drawing {
    SL_DRAW_TEXT,
    SL_DRAW_COLOURS, /* text for a terminal; equal blocks have equal colours */
    SL_DRAW_SVG,     /* one document with all arrays */
};

/* Draws COUNT arrays below each other, each under its name, shape and spec. SL_BAD_INPUT, before anything is drawn, if
 * a spec does not fit its mesh and shape (see sl_spec_local_shape). The caller checks FILE for write errors. */
int sl_sharding_draw(FILE *file, const struct sl_sharding *sharding, int count, enum sl_drawing drawing,
                     struct sl_error *error);

/* A shard has one piece along DIM in each segment. sl_sharding_segments counts them; sl_sharding_slice gives the
 * elements [*BEGIN, *END) of COORDINATE's piece in segment number SEGMENT. */
int sl_sharding_segments(const struct sl_sharding *sharding, int dim);
void sl_sharding_slice(const struct sl_sharding *sharding, int coordinate, int dim, int segment, size_t *begin,
                       size_t *end);

/* Writes "8 x 6", or "scalar" if there are no dims; returns TEXT. */
char *sl_shape_print(int dims, const size_t *shape, char *text, size_t size);

SL_END_C
#endif
