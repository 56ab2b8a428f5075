/* traffic_report.h - prints the messages, bytes and bells that coordinates send. */
#ifndef SL_DRIVERS_SPEED_TRAFFIC_REPORT_H
#define SL_DRIVERS_SPEED_TRAFFIC_REPORT_H

#include "drivers/common/metrics.h"
#include "spmd/engine.h"

/* Counts of STEPS steps, per step. */

/* A JSON array with an object for each call and way; NULL if nothing was counted. */
json_t *sl_traffic_object(const struct sl_traffic sent[SL_TRAFFIC_KINDS], int64_t steps);

/* Prints a table with a row for each call and way: over all COORDINATES, whose counts lie STRIDE bytes apart, and for
 * the busiest one. Nothing, if nothing was counted. */
void sl_traffic_print(const struct sl_traffic *sent, size_t stride, int coordinates, int64_t steps);

#endif
