/* costs.h - reads the costs of a schedule's actions from a file.
 *
 *     {"forward": 1.5, "input_gradient": [1.2, 1.2, 1.2, 2.5], "weight_gradient": 1.1, "reduce": 3,
 *      "optimizer": 0.4, "kept": 1048576, "communication": 0.1, "overlap": true}
 *
 * Milliseconds, except `kept`: the bytes that a stage saves per microbatch until its weight gradient. A list has one
 * number per stage. All are optional. The file may also be a trace of looping_pipeline --trace: then costs are computed
 * from it, for any schedule. */
#ifndef SL_DRIVERS_SCHEDULE_COSTS_H
#define SL_DRIVERS_SCHEDULE_COSTS_H

#include "spmd/schedule/simulate.h"

#define SCHEDULE_MOST_BYTES 1e15 /* limit of saved bytes per stage and microbatch, and per rank */

/* Overwrites the values in COSTS, STAGE [stages] and KEPT [stages] (may be NULL) that the file PATH has.
 * SL_BAD_INPUT names the mistake in the file. */
int schedule_costs_read(struct sl_costs *costs, struct sl_stage_costs *stage, double *kept, int stages,
                        const char *path, struct sl_error *error);

#endif
