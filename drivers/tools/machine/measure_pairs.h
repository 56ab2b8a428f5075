/* measure_pairs.h - measures links between coordinates in processes, by class of pair. */
#ifndef SL_DRIVERS_TOOLS_MACHINE_MEASURE_PAIRS_H
#define SL_DRIVERS_TOOLS_MACHINE_MEASURE_PAIRS_H

#include "drivers/tools/machine/machine.h"
#include "spmd/spmd.h"

/* Finds MACHINE's nodes, from the hosts and packages of WORLD's processes, the whole mesh; measures latency and
 * bandwidth of messages within a package, between packages of a node, between nodes. All coordinates call it; the
 * first one's result counts. */
int sl_measure_pairs(struct sl_spmd *self, const struct sl_group *world, struct sl_machine *machine);

#endif
