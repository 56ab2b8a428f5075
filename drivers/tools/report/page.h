/* page.h - writes a report as one self-contained HTML page. */
#ifndef SL_DRIVERS_TOOLS_REPORT_PAGE_H
#define SL_DRIVERS_TOOLS_REPORT_PAGE_H

#include <stdio.h>

#include "drivers/tools/report/runs/runs.h"
#include "drivers/tools/report/timeline.h"

/* Writes the page of RUNS with the traces TIMELINE[runs->count]. SL_FAILED without memory. */
int report_page_write(FILE *file, const struct report_runs *runs, const struct report_timeline *timeline,
                      struct sl_error *error);

/* Writes a sentence about missing or unusual contents of RUN's files; "": none. Returns TEXT. */
char *report_run_remark(const struct report_run *run, char *text, size_t size);

#endif
