/* topology.h - the processing units (PUs: cores, or their hardware threads) of this machine, and which lie close.
 *
 * They are listed in an order in which what is close lies together: those that share a core, a cache, a NUMA node, a
 * package follow one another. So distances need no matrix: two PUs are as far apart as the largest gap between them.
 *
 * hwloc knows them; in a build without it (SL_HWLOC) all are equally far from each other. */
#ifndef SL_SPMD_TOPOLOGY_H
#define SL_SPMD_TOPOLOGY_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_MAX_PUS = 1024 };

struct sl_pu {
    int number;        /* the operating system's */
    int core;          /* those of one core are its hardware threads */
    int package, node; /* the operating system's numbers; -1: unknown */
    int gap;           /* how far the next one is; the last one's is the largest of all */
};

struct sl_topology {
    int count;
    struct sl_pu pu[SL_MAX_PUS];
};

/* How many PUs the calling thread may run on; 0 where that cannot be found out. */
int sl_topology_usable(void);

/* Lists them: as the machine has them, which takes the first call in a process about 0.1 ms for each PU of it; or,
 * without DISTANCES, at once, as if all were equally far from each other. */
void sl_topology_read(struct sl_topology *topology, bool distances);

/* Drops the PUs whose KEEP[i] is false; those around them are as far apart as they were. */
void sl_topology_keep(struct sl_topology *topology, const bool *keep);

/* The NUMA node of the device at the PCI address BUS, "0000:3b:00.0"; -1: unknown. */
int sl_topology_node_of(const char *bus);

/* ---- topology_hwloc.c, or topology_hwloc_missing.c, which knows nothing ---- */

/* All PUs of this machine; false where hwloc cannot tell. */
bool sl_topology_machine(struct sl_topology *topology);

/* All PUs of the machine that DESCRIPTION, in hwloc's words, makes up: "package:2 l3:2 core:4 pu:2". */
bool sl_topology_synthetic(struct sl_topology *topology, const char *description);

SL_END_C
#endif
