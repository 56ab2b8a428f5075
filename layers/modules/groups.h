/* groups.h - the groups over which modules communicate.
 *
 * All coordinates open the same groups in the same order, but their stages have different modules. So whoever runs
 * modules opens a group for each of a list of axes, once and everywhere, and a module asks for one of them by name. */
#ifndef SL_LAYERS_MODULES_GROUPS_H
#define SL_LAYERS_MODULES_GROUPS_H

#include "collectives/collectives.h"

SL_BEGIN_C

enum { SL_MAX_GROUPS = 8 };

struct sl_groups {
    int count;
    struct sl_group group[SL_MAX_GROUPS];
};

/* Opens a group over each of AXES (as for sl_group_axes; NULL after the last; NULL itself: none). Collective over the
 * mesh. An axis that the mesh has not, or of size 1, needs no group. */
int sl_groups_open(struct sl_groups *groups, struct sl_spmd *self, const char *const *axes);

/* Closes them. Also after a failure, and where none are open. */
void sl_groups_close(struct sl_groups *groups, struct sl_spmd *self);

/* *NUMBER of the group over AXES, -1 where coordinates are alone along them. SL_BAD_INPUT: nobody has opened it. */
int sl_groups_find(const struct sl_groups *groups, const struct sl_mesh *mesh, const char *axes, int *number,
                   struct sl_error *error);

SL_END_C
#endif
