/* costs.h - what the actions of a schedule cost, from a file.
 *
 *     {"forward": 1.5, "input_gradient": [1.2, 1.2, 1.2, 2.5], "weight_gradient": 1.1, "reduce": 3,
 *      "optimizer": 0.4, "communication": 0.1, "overlap": true}
 *
 * Milliseconds; a list has one number a stage. Any of them may be missing. Or the file is a trace that looping_pipeline
 * --trace wrote: then the costs are those measured there, under whatever schedule. */
#ifndef SL_DRIVERS_SCHEDULE_COSTS_H
#define SL_DRIVERS_SCHEDULE_COSTS_H

#include "spmd/schedule/simulate.h"

/* Overwrites in COSTS and STAGE [stages] what PATH names. SL_BAD_INPUT says where the file is wrong. */
int schedule_costs_read(struct sl_costs *costs, struct sl_stage_costs *stage, int stages, const char *path,
                        struct sl_error *error);

#endif
