/* groups.h - the groups over which modules communicate.
 *
 * All coordinates of the mesh must open the same groups in the same order, although their stages consist of different
 * modules. The pipeline therefore opens a group for each entry of a list of axes, once and on every coordinate, and a
 * module finds its group by the names of the axes. */
#ifndef SL_LAYERS_MODULES_CALLS_GROUPS_H
#define SL_LAYERS_MODULES_CALLS_GROUPS_H

#include "collectives/collectives.h"

SL_BEGIN_C

enum { SL_MAX_GROUPS = 8 };

struct sl_groups {
    int count;
    struct sl_group group[SL_MAX_GROUPS];
    bool by_tree[SL_MAX_GROUPS]; /* sums over the group are in the order of psum_tree */
    bool shares[SL_MAX_GROUPS];  /* set during planning: modules gather parameters' values over the group */
    /* For a group that shares: addresses of the members' memory of parameters, [group size], readable by this
     * coordinate; all have the same layout. NULL: calls gather the values. */
    const char **memory[SL_MAX_GROUPS];
};

/* Opens a group over each entry of AXES, written as for sl_group_axes. The list ends with NULL; a NULL list is empty.
 * An axis of size 1 or missing in the mesh needs no group. Collective over the mesh. Returns SL_BAD_INPUT if there are
 * more than SL_MAX_GROUPS. Close with sl_groups_close. */
int sl_groups_open(struct sl_groups *groups, struct sl_spmd *self, const char *const *axes);

/* Closes all groups. May be called after a failure, and if no group is open. */
void sl_groups_close(struct sl_groups *groups, struct sl_spmd *self);

/* Sends MEMORY, the address of this coordinate's parameters, to the members of groups that share, if the engine lets
 * coordinates read each other's memory. From then on values may change only between a step's last weight gradients,
 * which members sum together, and sl_groups_meet. Collective over these groups. */
int sl_groups_share(struct sl_groups *groups, struct sl_spmd *self, const void *memory);
/* Makes the members of groups that share wait for each other: before a step reads values, and after a step without
 * gradients. */
int sl_groups_meet(const struct sl_groups *groups, struct sl_spmd *self);

/* Finds the group over AXES: *NUMBER is its index, or -1 if the coordinates are alone along them. Returns SL_BAD_INPUT
 * if this group has not been opened. */
int sl_groups_find(const struct sl_groups *groups, const struct sl_mesh *mesh, const char *axes, int *number,
                   struct sl_error *error);

SL_END_C
#endif
