/* groups.c - groups of the local engine: opening and closing them, and memory shared by their members. */
#include "collectives/local/communicator_internal.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes behind the communicator of a group of SIZE members: members, their coordinates, and the gates' blocks and sums.
 */
struct parts {
    size_t members, coordinates, blocks, sums;
};
static struct parts parts_of(int size) {
    const size_t count = (size_t)size, blocks = size > SL_LOCAL_FEW ? (size_t)sl_local_blocks(size) : 0;
    return (struct parts){.members = count * sizeof(struct member),
                          .coordinates = sl_round_up(count * sizeof(int), SL_CACHE_LINE),
                          .blocks = blocks * sizeof(struct block),
                          .sums = blocks ? SL_MAX_IN_FLIGHT * SL_LOCAL_SHORT : 0};
}

static struct sl_local_communicator *new_communicator(const struct sl_group *group) {
    struct sl_local_communicator *communicator;
    const struct parts parts = parts_of(group->size);
    communicator =
        sl_local_take(sizeof *communicator + parts.members + parts.coordinates + 2 * parts.blocks + parts.sums);
    if (!communicator) return NULL;
    char *behind = (char *)communicator->member + parts.members;
    communicator->size = communicator->left = group->size;
    communicator->coordinate = (int *)behind;
    communicator->arrived.block = (struct block *)(behind += parts.coordinates);
    communicator->finished.block = (struct block *)(behind += parts.blocks);
    communicator->sum = (char(*)[SL_LOCAL_SHORT])(behind + parts.blocks);
    for (int i = 0; i < group->size; i++) communicator->coordinate[i] = sl_group_member(group, i);
    snprintf(communicator->name, sizeof communicator->name, "over \"%s\"", group->name);
    return communicator;
}

static bool has_members(const struct sl_local_communicator *communicator, const struct sl_group *group) {
    bool same = communicator->size == group->size;
    for (int i = 0; i < group->size && same; i++) same = communicator->coordinate[i] == sl_group_member(group, i);
    return same;
}

/* List of the communicators whose groups have the first member FIRST. */
static struct sl_local_communicator **communicators_of(struct sl_local_run *run, int first) {
    return &run->coordinate[first].communicators;
}

/* The first communicator of the group's members that this coordinate has not opened yet. All coordinates open groups in
 * the same order, so the members meet, and two groups of the same members stay separate. NULL without memory. */
static struct sl_local_communicator *open_communicator(struct sl_spmd *self, const struct sl_group *group) {
    struct sl_local_communicator **at = communicators_of(sl_local_self(self)->run, sl_group_member(group, 0));
    while (*at && (!has_members(*at, group) || (*at)->member[group->rank].opened)) at = &(*at)->next;
    if (!*at) *at = new_communicator(group);
    if (*at) (*at)->member[group->rank].opened = true;
    return *at;
}

static void free_communicator(struct sl_local_communicator *communicator) {
    if (communicator->memory) sl_device.give(communicator->memory);
    free(communicator);
}

int sl_local_group_open(struct sl_spmd *self, struct sl_group *group) {
    struct sl_local_coordinate *me = sl_local_self(self);
    SL_TRY(sl_local_alive(me));
    if (group->rank < 0) return SL_OK;
    pthread_mutex_lock(&me->run->opening);
    group->communicator = open_communicator(self, group);
    pthread_mutex_unlock(&me->run->opening);
    if (!group->communicator) return sl_fail(self, SL_FAILED, "no memory for the group \"%s\"", group->name);
    return SL_OK;
}

/* The last member frees the communicator. Afterwards no verdict refers to it as an awaited word or in a place. */
int sl_local_group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    struct sl_local_coordinate *me = sl_local_self(self);
    struct sl_local_communicator *communicator = group->communicator;
    SL_TRY(sl_local_enter(me, "closing", "a group", site));
    if (communicator->member[group->rank].under_way)
        return sl_fail(self, SL_BAD_INPUT, "the group \"%s\" has calls under way (closed at %s)", group->name, site);
    pthread_mutex_lock(&me->run->opening);
    if (--communicator->left == 0) {
        struct sl_local_communicator **at = communicators_of(me->run, communicator->coordinate[0]);
        while (*at != communicator) at = &(*at)->next;
        *at = communicator->next;
        free_communicator(communicator);
    }
    pthread_mutex_unlock(&me->run->opening);
    return SL_OK;
}

void sl_local_groups_close(struct sl_local_run *run) {
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_local_communicator **first = communicators_of(run, i);
        while (*first) {
            struct sl_local_communicator *communicator = *first;
            *first = communicator->next;
            free_communicator(communicator);
        }
    }
}

/* The first member to call allocates the memory. */
int sl_local_group_memory(struct sl_spmd *self, const struct sl_group *group, size_t bytes, void **memory) {
    struct sl_local_run *run = sl_local_self(self)->run;
    struct sl_local_communicator *communicator = group->communicator;
    pthread_mutex_lock(&run->opening);
    if (!communicator->memory) {
        communicator->memory = sl_device.take(bytes);
        communicator->bytes = bytes;
    }
    const size_t taken = communicator->bytes;
    *memory = communicator->memory;
    pthread_mutex_unlock(&run->opening);
    if (!*memory) return sl_fail(self, SL_FAILED, "no memory for %zu bytes of the group \"%s\"", bytes, group->name);
    if (taken == bytes) return SL_OK;
    return sl_fail(self, SL_BAD_INPUT, "the group \"%s\" has %zu bytes in common, not %zu", group->name, taken, bytes);
}
