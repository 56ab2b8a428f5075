/* rooms.c - rooms, shared memory for ranges that compute their gradients one after another: their ranges and sizes. */
#include "layers/modules/parameters/parameters.h"

size_t sl_room_floats(const struct sl_parameters *parameters, int room, size_t most) {
    size_t floats = 0;
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        if (range->room == room && range->count <= most && range->count > floats) floats = range->count;
    }
    return floats;
}

int sl_rooms_count(const struct sl_parameters *parameters) {
    int rooms = 0;
    for (int r = 0; r < parameters->ranges; r++)
        if (parameters->range[r].room > rooms) rooms = parameters->range[r].room;
    return rooms;
}

static size_t all_rooms_floats(const struct sl_parameters *parameters, size_t most) {
    const int rooms = sl_rooms_count(parameters);
    size_t floats = 0;
    for (int room = 1; room <= rooms; room++) floats += sl_room_floats(parameters, room, most);
    return floats;
}

size_t sl_rooms_floats(const struct sl_parameters *parameters) { return all_rooms_floats(parameters, SIZE_MAX); }

/* Floats of the ranges with rooms, if ranges of more than MOST elements get their own memory. */
static size_t floats_with_rooms(const struct sl_parameters *parameters, size_t most) {
    size_t floats = all_rooms_floats(parameters, most);
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        if (range->room) floats += range->count <= most ? range->shard_count : range->count;
    }
    return floats;
}

/* Removes rooms of one range, which takes no more memory without a room. */
static void leave_lone_rooms(struct sl_parameters *parameters) {
    const int rooms = sl_rooms_count(parameters);
    for (int room = 1; room <= rooms; room++) {
        int ranges = 0;
        for (int r = 0; r < parameters->ranges; r++)
            ranges += parameters->range[r].room == room && parameters->range[r].count > 0;
        for (int r = 0; r < parameters->ranges && ranges == 1; r++)
            if (parameters->range[r].room == room) parameters->range[r].room = 0;
    }
}

/* A large range, such as a token table's, should not have a room, because the other ranges would use only a small part
 * of it. */
void sl_rooms_choose(struct sl_parameters *parameters) {
    size_t most = 0;
    leave_lone_rooms(parameters);
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        if (range->room && floats_with_rooms(parameters, range->count) < floats_with_rooms(parameters, most))
            most = range->count;
    }
    for (int r = 0; r < parameters->ranges; r++)
        if (parameters->range[r].count > most) parameters->range[r].room = 0;
    leave_lone_rooms(parameters);
}
