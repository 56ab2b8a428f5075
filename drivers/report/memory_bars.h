/* memory_bars.h - what each coordinate's memory was used for, as bars in a page. */
#ifndef SL_DRIVERS_REPORT_MEMORY_BARS_H
#define SL_DRIVERS_REPORT_MEMORY_BARS_H

#include <stdio.h>

#include "drivers/report/runs.h"

/* Whether RUN's last line tells it: "memory" is a list with an object a coordinate, whose keys but "coordinate" are
 * categories, in bytes. */
bool report_memory_is_known(const struct report_run *run);
/* Draws the bars of all RUNS that tell it, on one scale. FILE_OF_ITS_OWN: as a file, not for a page. False: none tells
 * it. */
bool report_memory_write(FILE *file, const struct report_runs *runs, bool file_of_its_own);

#endif
