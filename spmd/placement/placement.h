/* placement.h - assigns coordinates to cores and devices: coordinates with most communication are placed closest.
 *
 * Coordinates that differ only along "data" talk least: once a step. Ranks of a pipeline ("pipe") talk once a
 * microbatch, coordinates along other axes in each layer. So the mesh is walked with "data" as the slowest axis, then
 * "pipe", then the others in their order, independent of the order of the mesh. Neighbours in this walk become
 * neighbours on the machine: the coordinates of one pipeline share a cache, a NUMA node, a package, or a group of GPUs
 * joined by NVLink, if one is large enough. */
#ifndef SL_SPMD_PLACEMENT_PLACEMENT_H
#define SL_SPMD_PLACEMENT_PLACEMENT_H

#include "spmd/mesh.h"
#include "spmd/placement/topology.h"

SL_BEGIN_C

enum { SL_MOST_PLACED_DEVICES = 64 };

/* The devices of this machine. At most SL_MOST_PLACED_DEVICES are used. */
struct sl_placement_devices {
    int count;
    int (*distance)(int one, int other, void *arg); /* symmetric; 0 (joined by NVLink) is closest */
    const char *(*bus)(int device, void *arg);      /* the PCI address or NULL; a NULL function: no device has one */
    int (*node_of)(const char *bus);                /* the NUMA node of a PCI address; NULL: ask the kernel */
    void *arg;
};

struct sl_placement {
    int *pu;     /* array of the caller [coordinates]: the operating system's number of the PU; -1: not bound */
    int *device; /* array of the caller [coordinates]: the device's number; -1: none */
};

/* Places the coordinates of MESH on PUs and devices.
 *
 * If TOPOLOGY (NULL: bind no coordinate) has a PU for each coordinate, each is bound to one. Each gets a core of its
 * own; only if there are more coordinates than cores do they share a core's hardware threads. Among equally good places
 * the first one from PU number HERE on is taken. A coordinate with a device prefers the device's NUMA node.
 *
 * If there are fewer PUs, but each PU can have the same number of whole replicas, the coordinates of a replica are
 * bound to one PU: their messages stay in its cache, and replicas have equal work. Otherwise coordinates are not bound:
 * parts of a replica work in turn, and get any free PU.
 *
 * If there are more coordinates than DEVICES (NULL: none), neighbours share a device. */
void sl_place_coordinates(const struct sl_mesh *mesh, const struct sl_topology *topology, int here,
                          const struct sl_placement_devices *devices, const struct sl_placement *placement);

SL_END_C
#endif
