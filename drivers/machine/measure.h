/* measure.h - the rates of the machine that this process runs on. */
#ifndef SL_DRIVERS_MACHINE_MEASURE_H
#define SL_DRIVERS_MACHINE_MEASURE_H

#include "drivers/machine/machine.h"
#include "layers/kernels/gemm.h"
#include "spmd/spmd.h"

struct sl_measurement {
    const struct sl_gemm_backend *gemm; /* NULL: the build's default */
    /* Products that are measured besides a grid of shapes; their rates are not read. */
    const struct sl_machine_product *product;
    int products;
    bool brief; /* a coarser grid, and one round in place of three */
};

/* Measures with all cores at work, as in a run: a coordinate a core over ENGINE, or, where coordinates are processes,
 * all of these. MACHINE becomes one node, or as many as there are hosts; at the process that speaks. Takes a second if
 * brief, and else about ten. Fails as sl_run does. */
int sl_machine_measure(struct sl_machine *machine, const struct sl_engine *engine,
                       const struct sl_measurement *measurement, struct sl_error *error);

/* Notes how fast the places of MACHINE's one node are beside the first, whose rates count: by SECONDS [places][count],
 * the least that each has needed for the same pieces of work (0: it has not done that one). Places that are within 2 %
 * of each other are alike. */
void sl_machine_compare_places(struct sl_machine *machine, const float *seconds, int count);

#endif
