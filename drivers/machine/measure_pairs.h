/* measure_pairs.h - the links of a machine whose coordinates are processes, by class of pair. */
#ifndef SL_DRIVERS_MACHINE_MEASURE_PAIRS_H
#define SL_DRIVERS_MACHINE_MEASURE_PAIRS_H

#include "drivers/machine/machine.h"
#include "spmd/spmd.h"

/* MACHINE's nodes, as the processes of WORLD, which is the whole mesh, lie on hosts and packages; latency and bandwidth
 * of messages within a package, between packages of a node, between nodes. All of them call it; what the first one has
 * counts. */
int sl_measure_pairs(struct sl_spmd *self, const struct sl_group *world, struct sl_machine *machine);

#endif
