/* groups.c - groups of the local engine: opening and closing them, and memory that their members have in common. */
#include "collectives/local/communicator_internal.h"
#include "spmd/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sl_local_communicator *new_communicator(const struct sl_group *group) {
    struct sl_local_communicator *communicator =
        sl_local_take(sizeof *communicator + (size_t)group->size * sizeof *communicator->member);
    if (!communicator) return NULL;
    communicator->size = communicator->left = group->size;
    memcpy(communicator->coordinate, group->member, sizeof communicator->coordinate);
    snprintf(communicator->name, sizeof communicator->name, "over \"%s\"", group->name);
    return communicator;
}

/* The first communicator of the group's members that this coordinate has not opened: openings have the same order
 * everywhere, so the members meet, and two groups of the same members stay apart. NULL without memory. */
static struct sl_local_communicator *open_communicator(struct sl_spmd *self, const struct sl_group *group) {
    const uint64_t me = UINT64_C(1) << self->coordinate;
    struct sl_local_communicator **at = &sl_local_self(self)->run->communicators;
    for (; *at; at = &(*at)->next) {
        const bool same = (*at)->size == group->size &&
                          !memcmp((*at)->coordinate, group->member, (size_t)group->size * sizeof *group->member);
        if (same && !((*at)->opened & me)) break;
    }
    if (!*at) *at = new_communicator(group);
    if (*at) (*at)->opened |= me;
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

/* The last member frees it. Verdicts then find it neither as something that a member waits for nor in a place. */
int sl_local_group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    struct sl_local_coordinate *me = sl_local_self(self);
    struct sl_local_communicator *communicator = group->communicator;
    SL_TRY(sl_local_enter(me, "closing", "a group", site));
    if (communicator->member[group->rank].under_way)
        return sl_fail(self, SL_BAD_INPUT, "the group \"%s\" has calls under way (closed at %s)", group->name, site);
    pthread_mutex_lock(&me->run->opening);
    if (--communicator->left == 0) {
        struct sl_local_communicator **at = &me->run->communicators;
        while (*at != communicator) at = &(*at)->next;
        *at = communicator->next;
        free_communicator(communicator);
    }
    pthread_mutex_unlock(&me->run->opening);
    return SL_OK;
}

void sl_local_groups_close(struct sl_local_run *run) {
    while (run->communicators) {
        struct sl_local_communicator *communicator = run->communicators;
        run->communicators = communicator->next;
        free_communicator(communicator);
    }
}

/* The first member to come takes it. */
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
