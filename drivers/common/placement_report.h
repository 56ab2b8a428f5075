/* placement_report.h - tells where the coordinates of a mesh really run. */
#ifndef SL_DRIVERS_COMMON_PLACEMENT_REPORT_H
#define SL_DRIVERS_COMMON_PLACEMENT_REPORT_H

#include "spmd/spmd.h"

/* Runs a program on MESH in which every coordinate looks around: on which host it is, which PUs it may use, what its
 * device is. Prints what they saw: a table with a row a coordinate, or where JSON an object a coordinate. */
int sl_placement_report(const struct sl_mesh *mesh, struct sl_engine *engine, bool json, struct sl_error *error);

#endif
