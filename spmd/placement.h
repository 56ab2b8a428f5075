/* placement.h - which coordinate runs on which core and device: those that talk most lie closest.
 *
 * Coordinates that differ along "data" alone talk least, once a step. So the mesh is walked with "data" as its slowest
 * axis, the others in their order, and neighbours in this walk become neighbours on the machine: the coordinates of a
 * pipeline share a cache, a NUMA node, a package, or an island of GPUs that NVLink joins, if there is one so large. */
#ifndef SL_SPMD_PLACEMENT_H
#define SL_SPMD_PLACEMENT_H

#include "spmd/mesh.h"
#include "spmd/topology.h"

SL_BEGIN_C

/* The devices there are. At most SL_MAX_COORDINATES are used. */
struct sl_placement_devices {
    int count;
    int (*distance)(int one, int other, void *arg); /* the same both ways; 0, over NVLink, is closest */
    const char *(*bus)(int device, void *arg);      /* the PCI address, NULL where it has none; NULL: none has one */
    int (*node_of)(const char *bus);                /* its NUMA node; NULL: as this machine's kernel says */
    void *arg;
};

struct sl_placement {
    int pu[SL_MAX_COORDINATES];     /* the operating system's number; -1: not bound */
    int device[SL_MAX_COORDINATES]; /* -1: none */
};

/* Places the coordinates of MESH.
 *
 * On the PUs of TOPOLOGY (NULL: on none) if there are as many: first one a core, hardware threads of the same core only
 * where there are more coordinates than cores. Of places that are equally good they get the first from PU number HERE
 * on. A coordinate with a device prefers the device's NUMA node.
 *
 * On DEVICES (NULL: on none): where there are more coordinates than devices, neighbours share one. */
void sl_place(const struct sl_mesh *mesh, const struct sl_topology *topology, int here,
              const struct sl_placement_devices *devices, struct sl_placement *placement);

SL_END_C
#endif
