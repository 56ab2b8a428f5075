/* shardings_report.h - prints the sharding of each parameter: --show-shardings. */
#ifndef SL_DRIVERS_TRAINING_SHARDINGS_REPORT_H
#define SL_DRIVERS_TRAINING_SHARDINGS_REPORT_H

#include "drivers/training/job.h"

/* Runs a program in which the coordinates plan JOB, and prints a table of its parameters: a row for each parameter
 * of each rank, or for all arrays that a library would stack, as job->options->show_shardings says. JSON: an object
 * instead of a row. */
int sl_shardings_report(struct sl_job *job, const struct sl_engine *engine, bool json);

#endif
