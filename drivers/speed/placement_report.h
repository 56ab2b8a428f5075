/* placement_report.h - reports the real placement of a mesh's coordinates. */
#ifndef SL_DRIVERS_SPEED_PLACEMENT_REPORT_H
#define SL_DRIVERS_SPEED_PLACEMENT_REPORT_H

#include "spmd/spmd.h"

/* Runs a program on MESH: every coordinate finds its host, the PUs it may use, and its device. Prints a table with a
 * row per coordinate, or if JSON an object per coordinate. */
int sl_placement_report(const struct sl_mesh *mesh, struct sl_engine *engine, bool json, struct sl_error *error);

#endif
