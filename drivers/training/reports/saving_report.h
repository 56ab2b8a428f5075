/* saving_report.h - the time that a run spent on saving, between its steps. */
#ifndef SL_DRIVERS_TRAINING_REPORTS_SAVING_REPORT_H
#define SL_DRIVERS_TRAINING_REPORTS_SAVING_REPORT_H

#include <jansson.h>

#include "drivers/common/checkpoints.h"

/* Adds to OBJECT the keys `snapshots`, with --save-async, and `protected`, with --protect. */
void sl_saving_describe(const struct sl_checkpoints *checkpoints, json_t *object);
/* Prints the same for people. */
void sl_saving_print(const struct sl_checkpoints *checkpoints);

#endif
