/* memory_bars.h - draws each coordinate's memory by category, as bars in a page. */
#ifndef SL_DRIVERS_TOOLS_REPORT_MEMORY_BARS_H
#define SL_DRIVERS_TOOLS_REPORT_MEMORY_BARS_H

#include <stdio.h>

#include "drivers/tools/report/runs/runs.h"

/* Whether RUN's last line has it: "memory" is a list with an object per coordinate, with bytes by category besides
 * "coordinate". */
bool report_memory_is_known(const struct report_run *run);
/* Draws the bars of all RUNS with such a list, on one scale. FILE_OF_ITS_OWN: as a separate file. Returns false if
 * no run has one. */
bool report_memory_write(FILE *file, const struct report_runs *runs, bool file_of_its_own);

#endif
