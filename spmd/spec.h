/* spec.h - partition specs: which dim of an array is sharded over which axes.
 *
 * As text, a spec has one entry per dim, separated by commas. An entry is "-" (the dim is not sharded), an axis name,
 * or several axis names joined by '+' (the first is the slowest). "*k" after the names means that the dim consists of k
 * segments side by side, each sharded by itself, as in [k|v]: "-,tensor*2". Dims left out at the end are not sharded:
 * "" is fully replicated. */
#ifndef SL_SPMD_SPEC_H
#define SL_SPMD_SPEC_H

#include "spmd/base/numbers/dtype.h"
#include "spmd/mesh.h"

SL_BEGIN_C

struct sl_spec_dim {
    int axes;
    char axis[SL_MAX_AXES][SL_AXIS_NAME];
    int segments;  /* at least 1 */
    size_t padded; /* 0: no padding. Otherwise the padded size, which is divided instead; only for the first dim, in one
                      segment. All shards then have equal room; the last ones hold fewer elements of the array, or none.
                      The text form has no padding */
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

/* Reads the text form. SL_BAD_INPUT names the wrong entry. */
int sl_spec_parse(struct sl_spec *spec, const char *text, struct sl_error *error);

/* Writes the text form; returns TEXT. */
char *sl_spec_print(const struct sl_spec *spec, char *text, size_t size);

/* Writes to LOCAL[dims] the shape of one shard of an array of shape GLOBAL[dims], with padding. SL_BAD_INPUT if the
 * spec names an axis twice or an axis the mesh does not have, if it has more dims than the array, or if a dim (or
 * segment) does not divide by the axes' sizes; the line then names both numbers. */
int sl_spec_local_shape(const struct sl_spec *spec, const struct sl_mesh *mesh, int dims, const size_t *global,
                        size_t *local, struct sl_error *error);

/* sl_spec_slice copies COORDINATE's shard from GLOBAL to LOCAL; sl_spec_assemble copies it back. Shapes must have
 * passed sl_spec_local_shape. */
void sl_spec_slice(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate,
                   const struct sl_array *global, void *local);
void sl_spec_assemble(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate,
                      const struct sl_array *global, const void *local);

/* Positions of a shard's elements in the array, computed once for loops over them. All dims after the last sharded one
 * are merged into it. All numbers count elements. */
struct sl_shard_dim {
    size_t local;   /* extent of the shard */
    size_t piece;   /* the shard's part of one segment; its elements are contiguous in the shard and in the array */
    size_t segment; /* extent of a segment in the array */
    size_t start;   /* offset of the piece in each segment */
    size_t stride;  /* stride of this dim in the array */
};

struct sl_shard {
    int dims; /* at least 1 */
    struct sl_shard_dim dim[SL_MAX_DIMS];
};

struct sl_shard sl_spec_shard(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int dims,
                              const size_t *global);

/* Length of a run: elements [k * run, (k + 1) * run) of the shard are contiguous in the array, too. */
static inline size_t sl_shard_run(const struct sl_shard *shard) { return shard->dim[shard->dims - 1].piece; }

static inline size_t sl_shard_elements(const struct sl_shard *shard) {
    size_t elements = 1;
    for (int d = 0; d < shard->dims; d++) elements *= shard->dim[d].local;
    return elements;
}

/* The flat index in the array of element I of the shard. */
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

/* The same index, computed from the spec, for a single element. */
size_t sl_spec_global_index(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int dims,
                            const size_t *global, size_t i);

/* sl_spec_first_replica returns the lowest coordinate with the same shard as COORDINATE; sl_spec_is_first_replica
 * returns whether COORDINATE is this lowest one. */
int sl_spec_first_replica(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate);
bool sl_spec_is_first_replica(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate);

/* The number of elements; SIZE_MAX if the number does not fit a size_t. */
size_t sl_array_elements(const struct sl_array *array);

SL_END_C
#endif
