/* chart.h - a plot over steps as SVG. */
#ifndef SL_DRIVERS_REPORT_CHART_H
#define SL_DRIVERS_REPORT_CHART_H

#include <stdio.h>

#include "drivers/report/plots.h"

enum { REPORT_COLOURS = 6 }; /* of runs, which come again with other dashes: classes r0 to r5, and d1 to d3 */

/* Writes "r0" or "r2 d1", the classes of run I. Returns TEXT. */
char *report_run_class(int i, char *text, size_t size);

/* Writes PLOT into a page. Nothing where no run has it. */
void report_chart_write(FILE *file, const struct report_plot *plot, const struct report_runs *runs);
/* Writes PLOT as a file of its own, with title and legend. False: no run has it. */
bool report_chart_write_file(FILE *file, const struct report_plot *plot, const struct report_runs *runs);

/* Begins the svg element of a picture for a page, or, where FILE_OF_ITS_OWN, of a file with its own style. */
void report_svg_begin(FILE *file, double width, double height, const char *label, bool file_of_its_own);

#endif
