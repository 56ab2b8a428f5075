/* profile_report.h - prints where the coordinates' time went. */
#ifndef SL_DRIVERS_SPEED_PROFILE_REPORT_H
#define SL_DRIVERS_SPEED_PROFILE_REPORT_H

#include <stdio.h>

#include "layers/modules/profile.h"
#include "spmd/device/device.h"

/* Prints PROFILE[mesh->size] as milliseconds a step, over STEPS steps: a table with a row a coordinate, and a line
 * where they share the CORES (0: unknown); or where JSON an object a coordinate. */
int sl_profile_report(const struct sl_profile *profile, const struct sl_mesh *mesh, int cores, int64_t steps, bool json,
                      struct sl_error *error);

/* Prints what became of coordinate 0's steps as graphs: a line, or where JSON an object. */
int sl_profile_graphs(const struct sl_graph_report *graphs, bool json, struct sl_error *error);

/* The share of the time without the optimizer in which coordinates had no core; NaN where nothing was recorded. */
double sl_profile_no_core(const struct sl_profile *profile, int coordinates);

#endif
