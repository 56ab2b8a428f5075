/* links.h - the links of a job's groups of coordinates on a machine: groups along each axis of the mesh, and replicas
 * along several. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_LINKS_H
#define SL_DRIVERS_TOOLS_SEARCH_LINKS_H

#include "drivers/tools/machine/machine.h"
#include "drivers/training/job.h"

/* Groups by the number of their axis; the last one is that of the coordinates with the same parameters, if they are
 * along several axes. */
enum { SL_LINKED_REPLICAS = SL_MAX_AXES, SL_LINKED_GROUPS };

struct sl_group_links {
    const struct sl_mesh *mesh;
    enum sl_link link[SL_LINKED_GROUPS]; /* the slowest in each group; of the pipeline's, between neighbours */
    int *node[SL_LINKED_GROUPS];         /* nodes of each group's members; NULL: calls do not follow hosts */
};

/* Finds the links of JOB, which is opened. NODES: engine mpi has algorithms for several hosts, so find the nodes of
 * groups that cross nodes. SL_FAILED without memory. Free with sl_links_free, also after a failure. */
int sl_links_find(struct sl_group_links *links, const struct sl_job *job, const struct sl_machine *machine, bool nodes,
                  struct sl_error *error);
void sl_links_free(struct sl_group_links *links);

/* Returns the slowest link of the group along AXES. */
enum sl_link sl_links_slowest(const struct sl_group_links *links, const char *axes);
/* Returns the nodes of the MEMBERS of the group along AXES; NULL: calls do not follow hosts. */
const int *sl_links_nodes(const struct sl_group_links *links, const char *axes, int members);

#endif
