/* shardings_report.h - how each parameter is sharded: --show-shardings. */
#ifndef SL_DRIVERS_TRAINING_SHARDINGS_REPORT_H
#define SL_DRIVERS_TRAINING_SHARDINGS_REPORT_H

#include "drivers/training/job.h"

/* Runs a program in which the coordinates plan JOB, and prints what its parameters are: a table with a row for each
 * parameter of each rank, or for all arrays that a library would stack, as job->options->show_shardings says. JSON: an
 * object in place of a row. */
int sl_shardings_report(struct sl_job *job, const struct sl_engine *engine, bool json);

#endif
