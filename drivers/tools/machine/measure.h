/* measure.h - measures the rates of this machine. */
#ifndef SL_DRIVERS_TOOLS_MACHINE_MEASURE_H
#define SL_DRIVERS_TOOLS_MACHINE_MEASURE_H

#include "drivers/tools/machine/machine.h"
#include "layers/kernels/gemm/gemm.h"
#include "spmd/spmd.h"

struct sl_measurement {
    const struct sl_gemm_backend *gemm; /* NULL: the build's default */
    /* Products to measure besides a grid of shapes; their rates are not read. */
    const struct sl_machine_product *product;
    int products;
    bool brief; /* a coarser grid, and one round instead of three */
};

/* Measures with all cores at work, as in a run: a coordinate per core over ENGINE, or, if coordinates are processes,
 * all of them. Writes MACHINE in the speaking process: one node, or one per host. Takes about a second if brief,
 * otherwise ten. Fails as sl_run does. */
int sl_machine_measure(struct sl_machine *machine, const struct sl_engine *engine,
                       const struct sl_measurement *measurement, struct sl_error *error);

/* Computes the speeds of the places of MACHINE's only node, relative to the first place, from SECONDS
 * [places][count]: each place's minimal times for the same pieces of work (0: not done). Places within 2 % of each
 * other count as equal. */
void sl_machine_compare_places(struct sl_machine *machine, const float *seconds, int count);

#endif
