/* spec.c - partition specs: reading, shapes, and moving shards between local and global arrays. */
#include "spmd/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Reads the entry of LENGTH characters at TEXT: "-", or NAME{+NAME}[*SEGMENTS]. Returns whether it is valid. */
static bool parse_entry(struct sl_spec_dim *dim, const char *text, size_t length) {
    *dim = (struct sl_spec_dim){.segments = 1};
    const char *const end = text + length;
    if (length == 1 && *text == '-') return true;
    for (;;) {
        const char *name = text;
        while (text < end && (isalnum((unsigned char)*text) || *text == '_')) text++;
        const size_t characters = (size_t)(text - name);
        if (!isalpha((unsigned char)*name) || characters >= SL_AXIS_NAME) return false;
        if (dim->axes == SL_MAX_AXES) return false;
        memcpy(dim->axis[dim->axes++], name, characters); /* the rest is zeros */
        if (text == end) return true;
        if (*text++ == '+') continue;
        if (text[-1] != '*') return false;
        for (dim->segments = 0; text < end && isdigit((unsigned char)*text); text++) {
            dim->segments = 10 * dim->segments + (*text - '0');
            if (dim->segments > SL_MAX_SEGMENTS) return false;
        }
        return text == end && dim->segments > 0;
    }
}

int sl_spec_parse(struct sl_spec *spec, const char *text, struct sl_error *error) {
    *spec = (struct sl_spec){0};
    if (!*text) return SL_OK;
    for (const char *entry = text;;) {
        const size_t length = strcspn(entry, ",");
        if (spec->dims == SL_MAX_DIMS) {
            return sl_error_set(error, SL_BAD_INPUT, "spec: '%.80s' has more than %d dims", text, SL_MAX_DIMS);
        }
        if (!parse_entry(&spec->dim[spec->dims], entry, length)) {
            return sl_error_set(
                error, SL_BAD_INPUT,
                "spec: '%.*s' in '%.80s' is not '-' or axis names joined by '+', with '*k' for k segments "
                "(1 to %d), as in '-,tensor*2'",
                length < 60 ? (int)length : 60, entry, text, SL_MAX_SEGMENTS);
        }
        spec->dims++;
        if (!entry[length]) return SL_OK;
        entry += length + 1;
    }
}

char *sl_spec_print(const struct sl_spec *spec, char *text, size_t size) {
    char entry[SL_MAX_AXES * SL_AXIS_NAME + 16];
    size_t used = 0;
    if (size) text[0] = 0;
    for (int d = 0; d < spec->dims; d++) {
        const struct sl_spec_dim *dim = &spec->dim[d];
        int length = snprintf(entry, sizeof entry, "%s%s", d ? "," : "", dim->axes ? "" : "-");
        for (int a = 0; a < dim->axes; a++) {
            length += snprintf(entry + length, sizeof entry - (size_t)length, "%s%.*s", a ? "+" : "", SL_AXIS_NAME - 1,
                               dim->axis[a]);
        }
        if (dim->axes && dim->segments > 1) {
            snprintf(entry + length, sizeof entry - (size_t)length, "*%d", dim->segments);
        }
        if (used < size) used += (size_t)snprintf(text + used, size - used, "%s", entry);
    }
    return text;
}

/* The number of shards of dim D, and the index of COORDINATE's shard. */
struct part {
    size_t count, index;
};

static struct part part_of(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int d) {
    struct part part = {1, 0};
    for (int a = 0; d < spec->dims && a < spec->dim[d].axes; a++) {
        const int axis = sl_mesh_find_axis(mesh, spec->dim[d].axis[a]);
        part.count *= (size_t)mesh->axis[axis].size;
        part.index = part.index * (size_t)mesh->axis[axis].size + (size_t)sl_mesh_index(mesh, coordinate, axis);
    }
    return part;
}

/* Refuses axes of SPEC that the mesh does not have, and repeated axes. */
static int check_axes(const struct sl_spec *spec, const struct sl_mesh *mesh, const char *text,
                      struct sl_error *error) {
    bool used[SL_MAX_AXES] = {false};
    for (int d = 0; d < spec->dims; d++) {
        for (int a = 0; a < spec->dim[d].axes; a++) {
            const char *name = spec->dim[d].axis[a];
            const int axis = sl_mesh_find_axis(mesh, name);
            if (axis < 0) {
                char axes[SL_MAX_AXES * (SL_AXIS_NAME + 4)];
                return sl_error_set(error, SL_BAD_INPUT, "spec '%s': the mesh %s has no axis '%s'", text,
                                    sl_mesh_print(mesh, axes, sizeof axes), name);
            }
            if (used[axis]) {
                return sl_error_set(error, SL_BAD_INPUT, "spec '%s' names the axis '%s' twice", text, name);
            }
            used[axis] = true;
        }
    }
    return SL_OK;
}

int sl_spec_local_shape(const struct sl_spec *spec, const struct sl_mesh *mesh, int dims, const size_t *global,
                        size_t *local, struct sl_error *error) {
    char text[200];
    sl_spec_print(spec, text, sizeof text);
    if (dims < 0 || dims > SL_MAX_DIMS) {
        return sl_error_set(error, SL_BAD_INPUT, "spec '%s': an array of %d dims; allowed are 0 to %d", text, dims,
                            SL_MAX_DIMS);
    }
    if (spec->dims > dims) {
        return sl_error_set(error, SL_BAD_INPUT, "spec '%s' has %d dims, the array has %d", text, spec->dims, dims);
    }
    SL_TRY(check_axes(spec, mesh, text, error));
    for (int d = 0; d < dims; d++) {
        local[d] = global[d];
        if (d >= spec->dims) continue;
        const int segments = spec->dim[d].segments;
        const size_t shards = part_of(spec, mesh, 0, d).count;
        const size_t padded = spec->dim[d].padded, size = padded ? padded : global[d];
        if (padded && (d > 0 || segments > 1 || padded < global[d])) {
            return sl_error_set(error, SL_BAD_INPUT,
                                "spec '%s': dim %d, of size %zu, is padded to %zu: only the first dim, in one segment, "
                                "can be, and to no less",
                                text, d, global[d], padded);
        }
        if (segments < 1 || size % (size_t)segments) {
            return sl_error_set(error, SL_BAD_INPUT, "spec '%s': dim %d, of size %zu, does not divide into %d segments",
                                text, d, size, segments);
        }
        if (size / (size_t)segments % shards) {
            return sl_error_set(error, SL_BAD_INPUT, "spec '%s': %s %d, of size %zu, does not divide by %zu shards",
                                text, segments > 1 ? "a segment of dim" : "dim", d, size / (size_t)segments, shards);
        }
        local[d] = size / shards;
    }
    return SL_OK;
}

struct sl_shard sl_spec_shard(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int dims,
                              const size_t *global) {
    struct sl_shard shard = {.dims = 1, .dim = {{.local = 1, .piece = 1, .segment = 1, .start = 0, .stride = 1}}};
    if (dims == 0) return shard;
    for (int d = 1; d < dims; d++) {
        if (part_of(spec, mesh, coordinate, d).count > 1) shard.dims = d + 1;
    }
    size_t inner = 1; /* elements of the dims after the last sharded one */
    for (int d = shard.dims; d < dims; d++) inner *= global[d];
    size_t stride = 1;
    for (int d = shard.dims - 1; d >= 0; d--) {
        const struct part part = part_of(spec, mesh, coordinate, d);
        const size_t segments = part.count > 1 ? (size_t)spec->dim[d].segments : 1;
        const size_t padded = d < spec->dims && spec->dim[d].padded ? spec->dim[d].padded : global[d];
        const size_t segment = global[d] / segments * inner, room = padded / segments * inner / part.count;
        const size_t start = part.index * room, left = start < segment ? segment - start : 0;
        const size_t piece = left < room ? left : room;
        shard.dim[d] = (struct sl_shard_dim){
            .local = piece * segments, .piece = piece, .segment = segment, .start = start, .stride = stride};
        stride *= segment * segments;
        inner = 1;
    }
    return shard;
}

void sl_spec_slice(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate,
                   const struct sl_array *global, void *local) {
    const struct sl_shard shard = sl_spec_shard(spec, mesh, coordinate, global->dims, global->shape);
    const size_t element = sl_dtype_size(global->dtype), run = sl_shard_run(&shard), count = sl_shard_elements(&shard);
    for (size_t i = 0; i < count; i += run) {
        const char *from = (const char *)global->data + sl_shard_global_index(&shard, i) * element;
        memcpy((char *)local + i * element, from, run * element);
    }
}

void sl_spec_assemble(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate,
                      const struct sl_array *global, const void *local) {
    const struct sl_shard shard = sl_spec_shard(spec, mesh, coordinate, global->dims, global->shape);
    const size_t element = sl_dtype_size(global->dtype), run = sl_shard_run(&shard), count = sl_shard_elements(&shard);
    for (size_t i = 0; i < count; i += run) {
        char *to = (char *)global->data + sl_shard_global_index(&shard, i) * element;
        memcpy(to, (const char *)local + i * element, run * element);
    }
}

size_t sl_spec_global_index(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate, int dims,
                            const size_t *global, size_t i) {
    const struct sl_shard shard = sl_spec_shard(spec, mesh, coordinate, dims, global);
    return sl_shard_global_index(&shard, i);
}

bool sl_spec_is_first_replica(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate) {
    return sl_spec_first_replica(spec, mesh, coordinate) == coordinate;
}

int sl_spec_first_replica(const struct sl_spec *spec, const struct sl_mesh *mesh, int coordinate) {
    for (int axis = 0; axis < mesh->axes; axis++) {
        bool named = false;
        for (int d = 0; d < spec->dims; d++) {
            for (int a = 0; a < spec->dim[d].axes; a++) named |= !strcmp(spec->dim[d].axis[a], mesh->axis[axis].name);
        }
        if (!named) coordinate = sl_mesh_neighbour(mesh, coordinate, axis, 0);
    }
    return coordinate;
}

size_t sl_array_elements(const struct sl_array *array) {
    size_t elements = 1;
    bool fits = true;
    for (int d = 0; d < array->dims; d++) {
        if (array->shape[d] == 0) return 0;
        fits &= !__builtin_mul_overflow(elements, array->shape[d], &elements);
    }
    return fits ? elements : SIZE_MAX;
}
