/* spec.h - partition specs: which dim of an array is sharded over which axes.
 *
 * As text, one entry a dim, separated by commas: "-" for a dim that is not sharded, an axis name, names joined by '+'
 * (the first is the slowest), and "*k" after them where the dim is k segments side by side, each sharded by itself, as
 * in [k|v]: "-,tensor*2". Dims left out are not sharded: "" is fully replicated. */
#ifndef SL_SPMD_SPEC_H
#define SL_SPMD_SPEC_H

#include "spmd/mesh.h"

SL_BEGIN_C

struct sl_spec_dim {
    int axes;
    char axis[SL_MAX_AXES][SL_AXIS_NAME];
    int segments; /* at least 1 */
};

struct sl_spec {
    int dims;
    struct sl_spec_dim dim[SL_MAX_DIMS];
};

enum { SL_MAX_SEGMENTS = 65536 };

/* An array in row-major order, not owned. */
struct sl_array {
    enum sl_dtype dtype;
    int dims;
    size_t shape[SL_MAX_DIMS];
    void *data;
};

/* SL_BAD_INPUT names the entry that is wrong. */
int sl_spec_parse(struct sl_spec *spec, const char *text, struct sl_error *error);

/* Writes the text form; returns TEXT. */
char *sl_spec_print(const struct sl_spec *spec, char *text, size_t size);

/* The shape of one shard of an array of shape GLOBAL[dims]. SL_BAD_INPUT where the spec names an axis that the mesh has
 * not, or twice, has more dims than the array, or a dim (a segment) does not divide: the line names both numbers. */
int sl_spec_local_shape(const struct sl_spec *spec, const struct sl_mesh *mesh, int dims, const size_t *global,
                        size_t *local, struct sl_error *error);

/* Copies COORDINATE's shard out of GLOBAL into LOCAL, or back. The shapes are as sl_spec_local_shape accepted them. */
void sl_spec_slice(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate,
                   const struct sl_array *global, void *local);
void sl_spec_assemble(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate,
                      const struct sl_array *global, const void *local);

/* Where a shard lies, worked out once for loops over its elements. The dims after the last sharded one are merged into
 * it. In elements. */
struct sl_shard_dim {
    size_t local;   /* the shard's extent */
    size_t piece;   /* its part of one segment: neighbours in the shard and in the array */
    size_t segment; /* a segment's extent in the array */
    size_t start;   /* where in each segment the piece begins */
    size_t stride;  /* of the dim in the array */
};

struct sl_shard {
    int dims; /* at least 1 */
    struct sl_shard_dim dim[SL_MAX_DIMS];
};

struct sl_shard sl_spec_shard(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int dims,
                              const size_t *global);

/* Elements [k * run, (k + 1) * run) of the shard lie together in the array too. */
static inline size_t sl_shard_run(const struct sl_shard *shard) { return shard->dim[shard->dims - 1].piece; }

static inline size_t sl_shard_elements(const struct sl_shard *shard) {
    size_t elements = 1;
    for (int d = 0; d < shard->dims; d++) elements *= shard->dim[d].local;
    return elements;
}

/* Global flat index of element I of the shard. */
static inline size_t sl_shard_global_index(const struct sl_shard *shard, size_t i) {
    size_t index = 0;
    for (int d = shard->dims - 1; d >= 0; d--) {
        const struct sl_shard_dim *dim = &shard->dim[d];
        const size_t outer = i / dim->local, local = i - outer * dim->local, segment = local / dim->piece;
        index += (segment * (dim->segment - dim->piece) + dim->start + local) * dim->stride;
        i = outer;
    }
    return index;
}

/* The same for one element. */
size_t sl_spec_global_index(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int dims,
                            const size_t *global, size_t i);

/* The first, in coordinate order, of the coordinates that hold the same shard as COORDINATE, and whether it is that. */
int sl_spec_first_replica(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate);
bool sl_spec_is_first_replica(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate);

/* The product of the shape; SIZE_MAX where it is larger than that. */
size_t sl_array_elements(const struct sl_array *array);

SL_END_C
#endif
