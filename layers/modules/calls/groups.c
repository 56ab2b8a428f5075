/* groups.c - opens the groups over which modules communicate, and finds them by name. */
#include "layers/modules/calls/groups.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether AXES is a single axis of size 1. */
static bool alone(const struct sl_mesh *mesh, const char *axes) {
    return !strchr(axes, ',') && strcmp(axes, "*") != 0 && sl_mesh_axis_size(mesh, axes) == 1;
}

int sl_groups_open(struct sl_groups *groups, struct sl_spmd *self, const char *const *axes) {
    *groups = (struct sl_groups){0};
    for (; axes && *axes; axes++) {
        if (alone(self->mesh, *axes)) continue;
        if (groups->count == SL_MAX_GROUPS)
            return sl_fail(self, SL_BAD_INPUT, "modules communicate over more than %d lists of axes", SL_MAX_GROUPS);
        SL_TRY(sl_group_axes(self, *axes, &groups->group[groups->count++]));
    }
    return SL_OK;
}

void sl_groups_close(struct sl_groups *groups, struct sl_spmd *self) {
    for (int i = 0; i < groups->count; i++) {
        sl_group_close(self, &groups->group[i]);
        free(groups->memory[i]);
        groups->memory[i] = NULL;
    }
    groups->count = 0;
}

static int share(struct sl_spmd *self, const struct sl_group *group, const void *own, const char ***memory) {
    if (!*memory) *memory = malloc((size_t)group->size * sizeof **memory);
    if (!*memory) return sl_fail(self, SL_FAILED, "no memory for %d members' addresses", group->size);
    return sl_all_gather(self, group, SL_I32, &own, (void *)*memory, sizeof own / sizeof(int32_t));
}

/* Addresses are sent as integers: coordinates that read each other's memory are in one process. */
int sl_groups_share(struct sl_groups *groups, struct sl_spmd *self, const void *memory) {
    for (int i = 0; i < groups->count && sl_reads_peers(self); i++)
        if (groups->shares[i]) SL_TRY(share(self, &groups->group[i], memory, &groups->memory[i]));
    return SL_OK;
}

int sl_groups_meet(const struct sl_groups *groups, struct sl_spmd *self) {
    for (int i = 0; i < groups->count; i++)
        if (groups->memory[i]) SL_TRY(sl_barrier(self, &groups->group[i]));
    return SL_OK;
}

int sl_groups_find(const struct sl_groups *groups, const struct sl_mesh *mesh, const char *axes, int *number,
                   struct sl_error *error) {
    *number = -1;
    if (alone(mesh, axes)) return SL_OK;
    for (int i = 0; groups && i < groups->count; i++) {
        if (strcmp(groups->group[i].name, axes) != 0) continue;
        *number = i;
        return SL_OK;
    }
    return sl_error_set(error, SL_BAD_INPUT, "no group over \"%.60s\" has been opened for modules", axes);
}
