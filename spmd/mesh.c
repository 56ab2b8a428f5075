/* mesh.c - reading, numbering and describing meshes. */
#include "spmd/mesh.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The length of the axis name at TEXT; 0 if there is none. */
static size_t name_length(const char *text) {
    size_t length = 0;
    if (!isalpha((unsigned char)text[0])) return 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    return length;
}

/* Reads the NAME=SIZE of LENGTH characters at PART into AXIS. */
static int parse_axis(struct sl_axis *axis, const char *part, size_t length, struct sl_error *error) {
    const int shown = length < 60 ? (int)length : 60;
    const size_t name = name_length(part);
    if (name == 0 || part[name] != '=') {
        return sl_error_set(
            error, SL_BAD_INPUT,
            "mesh: '%.*s' is not NAME=SIZE with a name of letters, digits and '_' (as in data=2,model=4)", shown, part);
    }
    if (name >= SL_AXIS_NAME) {
        return sl_error_set(error, SL_BAD_INPUT, "mesh: the axis name '%.*s' is longer than %d characters",
                            name < 60 ? (int)name : 60, part, SL_AXIS_NAME - 1);
    }
    int size = 0;
    size_t i = name + 1;
    while (i < length && isdigit((unsigned char)part[i]) && size <= SL_MOST_COORDINATES) {
        size = 10 * size + (part[i++] - '0');
    }
    if (i < length || i == name + 1 || size < 1 || size > SL_MOST_COORDINATES) {
        return sl_error_set(error, SL_BAD_INPUT, "mesh: the size in '%.*s' is not a number from 1 to %d", shown, part,
                            SL_MOST_COORDINATES);
    }
    memcpy(axis->name, part, name);
    axis->name[name] = 0;
    axis->size = size;
    return SL_OK;
}

int sl_mesh_parse(struct sl_mesh *mesh, const char *text, struct sl_error *error) {
    *mesh = (struct sl_mesh){.size = 1};
    for (const char *part = text;;) {
        const size_t length = strcspn(part, ",");
        if (mesh->axes == SL_MAX_AXES) {
            return sl_error_set(error, SL_BAD_INPUT, "mesh: '%.80s' has more than %d axes", text, SL_MAX_AXES);
        }
        struct sl_axis *axis = &mesh->axis[mesh->axes];
        SL_TRY(parse_axis(axis, part, length, error));
        if (sl_mesh_find_axis(mesh, axis->name) >= 0) {
            return sl_error_set(error, SL_BAD_INPUT, "mesh: '%.80s' names the axis '%s' twice", text, axis->name);
        }
        mesh->axes++;
        if ((int64_t)mesh->size * axis->size > SL_MOST_COORDINATES) {
            return sl_error_set(error, SL_BAD_INPUT, "mesh: '%.80s' has more than %d coordinates", text,
                                SL_MOST_COORDINATES);
        }
        mesh->size *= axis->size;
        if (!part[length]) return SL_OK;
        part += length + 1;
    }
}

int sl_mesh_check(const struct sl_mesh *mesh, struct sl_error *error) {
    if (mesh->axes < 0 || mesh->axes > SL_MAX_AXES) {
        return sl_error_set(error, SL_BAD_INPUT, "mesh: %d axes are not 0 to %d", mesh->axes, SL_MAX_AXES);
    }
    int size = 1;
    for (int axis = 0; axis < mesh->axes; axis++) {
        const char *name = mesh->axis[axis].name;
        const size_t length = strnlen(name, SL_AXIS_NAME);
        if (length == SL_AXIS_NAME || length == 0 || name_length(name) != length) {
            return sl_error_set(error, SL_BAD_INPUT, "mesh: the name of axis %d is not letters, digits and '_'", axis);
        }
        if (sl_mesh_find_axis(mesh, name) != axis) {
            return sl_error_set(error, SL_BAD_INPUT, "mesh: two axes have the name '%s'", name);
        }
        const int along = mesh->axis[axis].size;
        if (along < 1 || along > SL_MOST_COORDINATES || (int64_t)size * along > SL_MOST_COORDINATES) {
            return sl_error_set(error, SL_BAD_INPUT, "mesh: a size of %d along '%s' gives not 1 to %d coordinates",
                                along, name, SL_MOST_COORDINATES);
        }
        size *= along;
    }
    if (size == mesh->size) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "mesh: its size is %d, the product of its axes %d", mesh->size, size);
}

int sl_mesh_find_axis(const struct sl_mesh *mesh, const char *name) {
    for (int axis = 0; axis < mesh->axes; axis++) {
        if (!strcmp(mesh->axis[axis].name, name)) return axis;
    }
    return -1;
}

bool sl_axes_have(const char *axes, const char *axis) {
    const size_t length = strlen(axis);
    if (!strcmp(axes, "*")) return true;
    for (; axes; axes = strchr(axes, ',') ? strchr(axes, ',') + 1 : NULL) {
        if (!strncmp(axes, axis, length) && (axes[length] == ',' || !axes[length])) return true;
    }
    return false;
}

bool sl_axes_end_with(const struct sl_mesh *mesh, const char *axes, const char *axis) {
    if (sl_mesh_axis_size(mesh, axis) == 1) return true;
    for (int a = sl_mesh_find_axis(mesh, axis) + 1; a < mesh->axes; a++) {
        if (mesh->axis[a].size > 1 && sl_axes_have(axes, mesh->axis[a].name)) return false;
    }
    return sl_axes_have(axes, axis);
}

int sl_mesh_axis_size(const struct sl_mesh *mesh, const char *name) {
    int size = 1;
    for (int axis = 0; axis < mesh->axes; axis++) {
        if (sl_axes_have(name, mesh->axis[axis].name)) size *= mesh->axis[axis].size;
    }
    return size;
}

/* The difference in coordinate number between neighbours along AXIS. */
static int axis_stride(const struct sl_mesh *mesh, int axis) {
    int stride = 1;
    for (int later = axis + 1; later < mesh->axes; later++) stride *= mesh->axis[later].size;
    return stride;
}

int sl_mesh_index(const struct sl_mesh *mesh, int coordinate, int axis) {
    return coordinate / axis_stride(mesh, axis) % mesh->axis[axis].size;
}

int sl_mesh_neighbour(const struct sl_mesh *mesh, int coordinate, int axis, int index) {
    return coordinate + (index - sl_mesh_index(mesh, coordinate, axis)) * axis_stride(mesh, axis);
}

/* Calls snprintf at text + *used and advances *used; text that does not fit is cut. */
static void append(char *text, size_t size, size_t *used, const char *format, const char *name, int number) {
    if (*used >= size) return;
    const int wrote = snprintf(text + *used, size - *used, format, name, number);
    if (wrote > 0) *used += (size_t)wrote;
}

char *sl_mesh_describe(const struct sl_mesh *mesh, int coordinate, char *text, size_t size) {
    size_t used = 0;
    append(text, size, &used, "%s%d", "", coordinate);
    for (int axis = 0; axis < mesh->axes; axis++) {
        append(text, size, &used, axis ? ", %s=%d" : " (%s=%d", mesh->axis[axis].name,
               sl_mesh_index(mesh, coordinate, axis));
    }
    if (mesh->axes && used + 1 < size) memcpy(text + used, ")", 2);
    return text;
}

char *sl_mesh_print(const struct sl_mesh *mesh, char *text, size_t size) {
    size_t used = 0;
    if (size) text[0] = 0;
    for (int axis = 0; axis < mesh->axes; axis++) {
        append(text, size, &used, axis ? ",%s=%d" : "%s=%d", mesh->axis[axis].name, mesh->axis[axis].size);
    }
    return text;
}

/* Marks the axes in the comma-separated list AXES; -1 if the mesh has no such axis. */
static int mark_axes(const struct sl_mesh *mesh, const char *axes, bool *marked) {
    if (!axes[0]) return 0;
    for (const char *part = axes;;) {
        const size_t length = strcspn(part, ",");
        char name[SL_AXIS_NAME];
        if (length >= sizeof name) return -1;
        memcpy(name, part, length);
        name[length] = 0;
        const int axis = sl_mesh_find_axis(mesh, name);
        if (axis < 0) return -1;
        marked[axis] = true;
        if (!part[length]) return 0;
        part += length + 1;
    }
}

int sl_mesh_members(const struct sl_mesh *mesh, int coordinate, const char *axes, struct sl_members *members) {
    const bool all = !strcmp(axes, "*");
    bool varies[SL_MAX_AXES] = {false};
    *members = (struct sl_members){.first = coordinate};
    if (!all && mark_axes(mesh, axes, varies)) return -1;
    int size = 1;
    for (int axis = 0; axis < mesh->axes; axis++) {
        const int along = mesh->axis[axis].size, stride = axis_stride(mesh, axis);
        if ((!varies[axis] && !all) || along == 1) continue;
        int *count = &members->count[members->dims], *apart = &members->stride[members->dims];
        members->first -= sl_mesh_index(mesh, coordinate, axis) * stride;
        size *= along;
        if (members->dims && apart[-1] == along * stride) { /* one counter covers both axes */
            count[-1] *= along;
            apart[-1] = stride;
        } else {
            *count = along;
            *apart = stride;
            members->dims++;
        }
    }
    return size;
}
