/* ranges.c - texts for sets of coordinates. */
#include "spmd/ranges.h"

#include <stdio.h>
#include <string.h>

/* The rest of a buffer for a text; a longer text is cut. */
struct text {
    char *at;
    size_t left;
};

static void add(struct text *text, const char *format, const char *name, int number) {
    const int wrote = snprintf(text->at, text->left, format, name, number);
    const size_t used = wrote < 0 ? 0 : (size_t)wrote < text->left ? (size_t)wrote : text->left - 1;
    text->at += used;
    text->left -= used;
}

/* Appends the numbers of SET below END as "0-5, 8". */
static void add_numbers(struct text *text, const uint64_t *set, int end) {
    const char *between = "";
    for (int first = 0; first < end; first++) {
        if (!sl_set_has(set, first)) continue;
        int last = first;
        while (last + 1 < end && sl_set_has(set, last + 1)) last++;
        add(text, "%s%d", between, first);
        if (last > first) add(text, "%s%d", "-", last);
        first = last;
        between = ", ";
    }
}

/* Sets INDICES to the indices along AXIS of the coordinates in SET; returns their number. */
static int indices_along(const struct sl_mesh *mesh, const uint64_t *set, int axis, uint64_t *indices) {
    int count = 0;
    memset(indices, 0, sl_set_words(mesh->axis[axis].size) * sizeof *indices);
    for (int c = 0; c < mesh->size; c++)
        if (sl_set_has(set, c)) count += sl_set_adds(indices, sl_mesh_index(mesh, c, axis));
    return count;
}

/* Whether SET holds every combination of its coordinates' indices along the axes. */
static bool is_block(const struct sl_mesh *mesh, const uint64_t *set) {
    int64_t all = 1, held = 0;
    for (int axis = 0; axis < mesh->axes; axis++) {
        uint64_t indices[sl_set_words(mesh->axis[axis].size)];
        all *= indices_along(mesh, set, axis, indices);
    }
    for (int c = 0; c < mesh->size; c++) held += sl_set_has(set, c);
    return mesh->axes && held == all;
}

char *sl_mesh_describe_set(const struct sl_mesh *mesh, const uint64_t *set, char *text, size_t size) {
    struct text to = {text, size};
    if (!is_block(mesh, set)) {
        add_numbers(&to, set, mesh->size);
    } else {
        for (int axis = 0; axis < mesh->axes; axis++) {
            uint64_t indices[sl_set_words(mesh->axis[axis].size)];
            indices_along(mesh, set, axis, indices);
            add(&to, axis ? ", %s=" : "%s=", mesh->axis[axis].name, 0);
            add_numbers(&to, indices, mesh->axis[axis].size);
        }
    }
    if (to.left == 1 && size > sizeof "...") memcpy(text + size - sizeof "...", "...", sizeof "...");
    return text;
}
