/* mesh.h - a mesh of coordinates with named axes.
 *
 * The user chooses the axes' names, and any sizes. Coordinates are numbered row-major, the last axis fastest: under
 * data=2,model=4 coordinate 5 is (data=1, model=1). */
#ifndef SL_SPMD_MESH_H
#define SL_SPMD_MESH_H

#include "spmd/base/error.h"

SL_BEGIN_C

enum {
    SL_AXIS_NAME = 24,
    /* Most coordinates: beyond the memory of any run, and small enough for an int to count a few things per
     * coordinate. */
    SL_MOST_COORDINATES = 1 << 20,
};

struct sl_axis {
    char name[SL_AXIS_NAME];
    int size;
};

struct sl_mesh {
    int axes;
    struct sl_axis axis[SL_MAX_AXES];
    int size; /* coordinates: the product of the axes' sizes */
};

/* Reads "data=2,model=4". A name is a letter followed by letters, digits or '_'. Each size is 1 to SL_MOST_COORDINATES,
 * and so is the product of all sizes. SL_BAD_INPUT names the wrong part. */
int sl_mesh_parse(struct sl_mesh *mesh, const char *text, struct sl_error *error);

/* Checks a mesh the caller filled in by hand: counts in range, names set and distinct, size the product. */
int sl_mesh_check(const struct sl_mesh *mesh, struct sl_error *error);

/* The position of the axis called NAME, or -1. */
int sl_mesh_find_axis(const struct sl_mesh *mesh, const char *name);

/* Whether AXES, a list of comma-separated names or "*" for all, has AXIS. */
bool sl_axes_have(const char *axes, const char *axis);
/* Whether AXIS is the last of AXES, in the mesh's order and without axes of size 1. True also if AXIS has size 1. */
bool sl_axes_end_with(const struct sl_mesh *mesh, const char *axes, const char *axis);

/* The size of the axis called NAME, or the product of the sizes of several, comma-separated. An axis missing in the
 * mesh has size 1: it does not shard. */
int sl_mesh_axis_size(const struct sl_mesh *mesh, const char *name);

/* COORDINATE's index along axis number AXIS. */
int sl_mesh_index(const struct sl_mesh *mesh, int coordinate, int axis);

/* COORDINATE, but with INDEX along axis number AXIS. */
int sl_mesh_neighbour(const struct sl_mesh *mesh, int coordinate, int axis, int index);

/* Writes "5 (data=1, model=1)" for messages; returns TEXT. */
char *sl_mesh_describe(const struct sl_mesh *mesh, int coordinate, char *text, size_t size);

/* Writes "data=2,model=4"; returns TEXT. */
char *sl_mesh_print(const struct sl_mesh *mesh, char *text, size_t size);

/* Some coordinates of a mesh, in order: those of `list` or, if it is NULL, first + sum of i[d] * stride[d] for all i
 * with 0 <= i[d] < count[d], the last dim fastest. */
struct sl_members {
    int first, dims;
    int count[SL_MAX_AXES], stride[SL_MAX_AXES];
    const int *list; /* NULL: the counters apply */
};

/* Coordinate number I of MEMBERS, from 0. */
static inline int sl_member_at(const struct sl_members *members, int i) {
    if (members->list) return members->list[i];
    int coordinate = members->first;
    for (int dim = members->dims - 1; dim > 0; i /= members->count[dim], dim--)
        coordinate += i % members->count[dim] * members->stride[dim];
    return members->dims ? coordinate + i * members->stride[0] : coordinate;
}

/* Fills in MEMBERS, in coordinate order, with the coordinates equal to COORDINATE except along AXES: comma-separated
 * names, "" for COORDINATE alone, or "*" for the whole mesh. Returns their number, or -1 if the mesh has no such
 * axis. */
int sl_mesh_members(const struct sl_mesh *mesh, int coordinate, const char *axes, struct sl_members *members);

SL_END_C
#endif
