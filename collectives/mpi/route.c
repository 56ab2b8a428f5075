/* route.c - the hosts of a group, and the routes of its calls: see hosts.h. */
#include "collectives/mpi/hosts.h"

#include <stdlib.h>

#include "collectives/costs/costs.h"

/* ---- the hosts of a group ---- */

static int host_at(const struct sl_group *group, int position) {
    return sl_mpi_host_of(sl_group_member(group, position));
}

/* Whether the members of each host are neighbours: no host has two beginnings. */
static bool are_neighbours(const struct sl_group *group, const struct sl_mpi_hosts *hosts) {
    for (int i = 0; i < hosts->count; i++)
        for (int k = 0; k < i; k++)
            if (host_at(group, hosts->first[i]) == host_at(group, hosts->first[k])) return false;
    return true;
}

bool sl_mpi_find_hosts(const struct sl_group *group, struct sl_mpi_hosts **found) {
    struct sl_mpi_hosts *hosts = calloc(1, sizeof *hosts + ((size_t)group->size + 1) * sizeof *hosts->first);
    *found = hosts;
    if (!hosts) return false;
    for (int i = 0; i < group->size; i++) {
        if (i == 0 || host_at(group, i) != host_at(group, i - 1)) hosts->first[hosts->count++] = i;
        if (i == group->rank) hosts->mine = hosts->count - 1;
    }
    hosts->first[hosts->count] = group->size;
    hosts->lanes = sl_layout_lanes(&(struct sl_layout){group->size, hosts->count, hosts->first});
    if (are_neighbours(group, hosts)) return true;
    free(hosts);
    *found = NULL;
    return true;
}

/* ---- routes ---- */

const struct sl_mpi_route *sl_mpi_route_of(const struct sl_mpi_communicator *communicator,
                                           const struct sl_collective *call) {
    static const struct sl_mpi_route *const route[] = {[SL_ALGORITHM_MAILBOXES] = &sl_mpi_by_mailboxes,
                                                       [SL_ALGORITHM_GATHERED] = &sl_mpi_gathered,
                                                       [SL_ALGORITHM_CHAINED] = &sl_mpi_chained,
                                                       [SL_ALGORITHM_MESSAGES] = &sl_mpi_by_messages};
    struct sl_layout layout = {.members = call->group->size, .hosts = communicator->mailboxes != NULL};
    if (communicator->hosts) layout = sl_mpi_layout_of(communicator);
    return route[sl_algorithm_of(&layout, call)];
}
