/* costs.h - what the actions of a schedule cost, from a file.
 *
 *     {"forward": 1.5, "input_gradient": [1.2, 1.2, 1.2, 2.5], "weight_gradient": 1.1, "reduce": 3,
 *      "optimizer": 0.4, "kept": 1048576, "communication": 0.1, "overlap": true}
 *
 * Milliseconds, but for `kept`: the bytes that a stage keeps of a microbatch until its weight gradient. A list has one
 * number a stage. Any of them may be missing. Or the file is a trace that looping_pipeline
 * --trace wrote: then the costs are those measured there, under whatever schedule. */
#ifndef SL_DRIVERS_SCHEDULE_COSTS_H
#define SL_DRIVERS_SCHEDULE_COSTS_H

#include "spmd/schedule/simulate.h"

#define SCHEDULE_MOST_BYTES 1e15 /* that a stage may keep of a microbatch, and a rank of all of them */

/* Overwrites in COSTS, STAGE [stages] and KEPT [stages] (may be NULL) what PATH names. SL_BAD_INPUT says where the file
 * is wrong. */
int schedule_costs_read(struct sl_costs *costs, struct sl_stage_costs *stage, double *kept, int stages,
                        const char *path, struct sl_error *error);

#endif
