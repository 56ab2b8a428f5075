/* topology.h - the processing units (PUs: cores, or their hardware threads) of this machine, and their distances.
 *
 * PUs of the same core, cache, NUMA node or package follow one another in the list. So the distances need no matrix:
 * two PUs are as far apart as the largest gap between them in the list.
 *
 * hwloc provides the list. In a build without hwloc (SL_HWLOC=OFF) all PUs are equally far apart. */
#ifndef SL_SPMD_PLACEMENT_TOPOLOGY_H
#define SL_SPMD_PLACEMENT_TOPOLOGY_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_MAX_PUS = 1024 };

struct sl_pu {
    int number;        /* the operating system's number of the PU */
    int core;          /* PUs with the same core are its hardware threads */
    int package, node; /* the operating system's numbers of package and NUMA node; -1: unknown */
    int gap;           /* distance to the next PU in the list; the last PU has the largest gap of all */
};

struct sl_topology {
    int count;
    struct sl_pu pu[SL_MAX_PUS];
};

/* The number of PUs on which the calling thread may run; 0: unknown. */
int sl_topology_usable(void);

/* Lists the PUs. With DISTANCES it asks hwloc, which takes about 0.1 ms a PU in the first call of a process. Without,
 * it returns at once and gives all PUs the same distance. */
void sl_topology_read(struct sl_topology *topology, bool distances);

/* Drops the PUs whose KEEP[i] is false. The distances between the others stay the same. */
void sl_topology_keep(struct sl_topology *topology, const bool *keep);

/* The NUMA node of the device at the PCI address BUS, "0000:3b:00.0"; -1: unknown. */
int sl_topology_node_of(const char *bus);

/* ---- topology_hwloc.c; in builds without hwloc topology_hwloc_missing.c, where both return false ---- */

/* All PUs of this machine; false if hwloc cannot find them. */
bool sl_topology_machine(struct sl_topology *topology);

/* All PUs of an invented machine, described in hwloc's own syntax: "package:2 l3:2 core:4 pu:2". */
bool sl_topology_synthetic(struct sl_topology *topology, const char *description);

SL_END_C
#endif
