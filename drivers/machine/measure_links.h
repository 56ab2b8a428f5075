/* measure_links.h - what messages, calls and sleep cost, for a machine. */
#ifndef SL_DRIVERS_MACHINE_MEASURE_LINKS_H
#define SL_DRIVERS_MACHINE_MEASURE_LINKS_H

#include "drivers/machine/machine.h"
#include "layers/kernels/gemm.h"
#include "spmd/spmd.h"

/* MACHINE's links, and its times of waking. All coordinates of the mesh call it. */
int sl_measure_links(struct sl_spmd *self, const struct sl_gemm_backend *gemm, struct sl_machine *machine);
/* What coordinates pay for sharing cores, in a run of its own with several on each of so many PLACES. BRIEF: the
 * bandwidth of groups, which takes long, stays that of links. */
int sl_measure_sharing(const struct sl_engine *engine, const struct sl_gemm_backend *gemm, int places, bool brief,
                       struct sl_machine *machine);

/* The median of COUNT values, which are sorted. */
double sl_median_of(double *value, int count);

#endif
