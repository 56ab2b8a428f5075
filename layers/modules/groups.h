/* groups.h - the groups over which modules communicate.
 *
 * All coordinates of the mesh have to open the same groups in the same order, although their stages consist of
 * different modules. So the pipeline opens a group for each entry of a list of axes, once and on every coordinate, and
 * a module asks for a group by the name of its axes. */
#ifndef SL_LAYERS_MODULES_GROUPS_H
#define SL_LAYERS_MODULES_GROUPS_H

#include "collectives/collectives.h"

SL_BEGIN_C

enum { SL_MAX_GROUPS = 8 };

struct sl_groups {
    int count;
    struct sl_group group[SL_MAX_GROUPS];
    bool by_tree[SL_MAX_GROUPS]; /* sums over the group are in the order of psum_tree */
    bool shares[SL_MAX_GROUPS];  /* set while planning: modules gather parameters' values over the group */
    /* Of a group that shares: where the members' memory of parameters begins, which is laid out alike and which this
     * coordinate can read, [group size]. NULL: values are gathered by calls. */
    const char **memory[SL_MAX_GROUPS];
};

/* Opens a group over each entry of AXES, which are written as for sl_group_axes; the list ends with NULL, and a NULL
 * list means none. An axis that the mesh lacks or that has size 1 needs no group. Collective over the mesh.
 * SL_BAD_INPUT if there are more than SL_MAX_GROUPS. Close with sl_groups_close. */
int sl_groups_open(struct sl_groups *groups, struct sl_spmd *self, const char *const *axes);

/* Closes all groups. May be called after a failure, and when no group is open. */
void sl_groups_close(struct sl_groups *groups, struct sl_spmd *self);

/* Tells the members of groups that share where this coordinate's parameters lie, in MEMORY, if the engine lets
 * coordinates read each other's memory. From then on values change only after the last weight gradients of a step,
 * which members sum together, and before sl_groups_meet. Collective over these groups. */
int sl_groups_share(struct sl_groups *groups, struct sl_spmd *self, const void *memory);
/* The members of groups that share wait for each other: before a step reads values, and after one that computed no
 * gradients. */
int sl_groups_meet(const struct sl_groups *groups, struct sl_spmd *self);

/* *NUMBER is the index of the group over AXES, or -1 if the coordinates are alone along them. SL_BAD_INPUT if no such
 * group has been opened. */
int sl_groups_find(const struct sl_groups *groups, const struct sl_mesh *mesh, const char *axes, int *number,
                   struct sl_error *error);

SL_END_C
#endif
