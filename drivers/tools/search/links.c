/* links.c - finds the slowest link of each group, at the first coordinates of all ranks. */
#include "drivers/tools/search/links.h"

#include <stdlib.h>
#include <string.h>

/* Returns the axes of GROUP; NULL: the job has no such group. */
static const char *axes_of(const struct sl_job *job, int group) {
    if (group == SL_LINKED_REPLICAS) return job->parts > 1 ? job->replica_axes : NULL;
    return group < job->mesh.axes ? job->mesh.axis[group].name : NULL;
}

/* Returns the group along AXES; -1: the mesh does not have them. */
static int group_along(const struct sl_group_links *links, const char *axes) {
    return strchr(axes, ',') ? SL_LINKED_REPLICAS : sl_mesh_find_axis(links->mesh, axes);
}

/* Returns the slowest link between OWN and the other members of its group along AXES. */
static enum sl_link farthest(const struct sl_job *job, const struct sl_machine *machine, int own, const char *axes) {
    struct sl_members members;
    const int size = sl_mesh_members(&job->mesh, own, axes, &members);
    enum sl_link worst = SL_LINK_CORE;
    for (int i = 0; i < size; i++) {
        const int other = sl_member_at(&members, i);
        const enum sl_link link = other == own ? worst : sl_machine_link(machine, own, other);
        worst = link > worst ? link : worst;
    }
    return worst;
}

/* Finds the links of a group. A rank of the pipeline sends to the next one. */
static enum sl_link find_link(const struct sl_job *job, const struct sl_machine *machine, int group) {
    const int pipe = sl_mesh_find_axis(&job->mesh, sl_job_axis(job, SL_JOB_PIPE));
    enum sl_link worst = SL_LINK_CORE;
    for (int rank = 0; rank < job->ranks; rank++) {
        const int own = sl_mesh_neighbour(&job->mesh, 0, pipe, rank);
        const int next = rank + 1 < job->ranks ? sl_mesh_neighbour(&job->mesh, 0, pipe, rank + 1) : own;
        const enum sl_link link =
            group == pipe ? sl_machine_link(machine, own, next) : farthest(job, machine, own, axes_of(job, group));
        worst = link > worst ? link : worst;
    }
    return worst;
}

static int find_nodes(struct sl_group_links *links, const struct sl_job *job, const struct sl_machine *machine,
                      int group, struct sl_error *error) {
    struct sl_members members;
    const int size = sl_mesh_members(&job->mesh, 0, axes_of(job, group), &members);
    int *node = links->node[group] = malloc((size_t)size * sizeof *node);
    if (!node) return sl_error_set(error, SL_FAILED, "no memory for the nodes of %d coordinates", size);
    for (int i = 0; i < size; i++) node[i] = sl_machine_node(machine, sl_member_at(&members, i));
    return SL_OK;
}

int sl_links_find(struct sl_group_links *links, const struct sl_job *job, const struct sl_machine *machine, bool nodes,
                  struct sl_error *error) {
    *links = (struct sl_group_links){.mesh = &job->mesh};
    for (int group = 0; group < SL_LINKED_GROUPS; group++) {
        if (!axes_of(job, group)) continue;
        links->link[group] = find_link(job, machine, group);
        if (nodes && links->link[group] == SL_LINK_NETWORK) SL_TRY(find_nodes(links, job, machine, group, error));
    }
    return SL_OK;
}

void sl_links_free(struct sl_group_links *links) {
    for (int group = 0; group < SL_LINKED_GROUPS; group++) free(links->node[group]);
}

enum sl_link sl_links_slowest(const struct sl_group_links *links, const char *axes) {
    const int group = group_along(links, axes);
    return group < 0 ? SL_LINK_CORE : links->link[group];
}

const int *sl_links_nodes(const struct sl_group_links *links, const char *axes, int members) {
    const int group = group_along(links, axes);
    return group >= 0 && members == sl_mesh_axis_size(links->mesh, axes) ? links->node[group] : NULL;
}
