/* profile_report.h - prints the parts of the coordinates' time. */
#ifndef SL_DRIVERS_SPEED_PROFILE_REPORT_H
#define SL_DRIVERS_SPEED_PROFILE_REPORT_H

#include <stdio.h>

#include "layers/modules/calls/profile.h"
#include "spmd/device/device.h"

/* Prints PROFILE[mesh->size] as milliseconds per step, over STEPS steps: a table with a row per coordinate, and a
 * line if they share the CORES (0: unknown); or if JSON an object per coordinate. */
int sl_profile_report(const struct sl_profile *profile, const struct sl_mesh *mesh, int cores, int64_t steps, bool json,
                      struct sl_error *error);

/* Prints how coordinate 0's steps were run as graphs: a line, or if JSON an object. */
int sl_profile_graphs(const struct sl_graph_report *graphs, bool json, struct sl_error *error);

/* Returns the share of the time, without the optimizer, in which coordinates had no core; NaN without records. */
double sl_profile_no_core(const struct sl_profile *profile, int coordinates);

#endif
