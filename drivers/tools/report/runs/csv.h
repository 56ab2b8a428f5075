/* csv.h - the steps of runs as comma-separated values (RFC 4180), for other programs. */
#ifndef SL_DRIVERS_TOOLS_REPORT_RUNS_CSV_H
#define SL_DRIVERS_TOOLS_REPORT_RUNS_CSV_H

#include <stdio.h>

#include "drivers/tools/report/runs/runs.h"

/* Writes a line with the columns' names, then one for each step of each run: the run's name, the step, and a number
 * or nothing for each quantity that any of RUNS has, titled by its key. Lines end with CR LF. */
void report_csv_write(FILE *file, const struct report_runs *runs);

#endif
