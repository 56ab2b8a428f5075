/* measure_links.h - measures the costs of messages, calls and sleep. */
#ifndef SL_DRIVERS_TOOLS_MACHINE_MEASURE_LINKS_H
#define SL_DRIVERS_TOOLS_MACHINE_MEASURE_LINKS_H

#include "drivers/tools/machine/machine.h"
#include "layers/kernels/gemm/gemm.h"
#include "spmd/spmd.h"

/* Measures MACHINE's links and waking times. All coordinates of the mesh call it. */
int sl_measure_links(struct sl_spmd *self, const struct sl_gemm_backend *gemm, struct sl_machine *machine);
/* Measures the costs of sharing cores, in separate runs with several coordinates on each of PLACES places. BRIEF:
 * the bandwidth of groups, which takes long, is not measured and stays the links'. */
int sl_measure_sharing(const struct sl_engine *engine, const struct sl_gemm_backend *gemm, int places, bool brief,
                       struct sl_machine *machine);

/* Returns the median of COUNT values, and sorts them. */
double sl_median_of(double *value, int count);

#endif
