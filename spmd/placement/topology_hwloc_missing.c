/* topology_hwloc_missing.c - for builds without hwloc: the machine's structure is unknown. */
#include "spmd/placement/topology.h"

bool sl_topology_machine(struct sl_topology *topology) {
    (void)topology;
    return false;
}

bool sl_topology_synthetic(struct sl_topology *topology, const char *description) {
    (void)topology, (void)description;
    return false;
}
