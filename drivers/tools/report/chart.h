/* chart.h - draws a plot over steps as SVG. */
#ifndef SL_DRIVERS_TOOLS_REPORT_CHART_H
#define SL_DRIVERS_TOOLS_REPORT_CHART_H

#include <stdio.h>

#include "drivers/tools/report/plots.h"

enum { REPORT_COLOURS = 6 }; /* of runs; further runs repeat them with other dashes: classes r0 to r5, and d1 to d3 */

/* Writes "r0" or "r2 d1", the classes of run I. Returns TEXT. */
char *report_run_class(int i, char *text, size_t size);

/* Writes PLOT into a page; nothing if no run has its quantity. */
void report_chart_write(FILE *file, const struct report_plot *plot, const struct report_runs *runs);
/* Writes PLOT as a separate file, with title and legend. Returns false if no run has its quantity. */
bool report_chart_write_file(FILE *file, const struct report_plot *plot, const struct report_runs *runs);

/* Begins the svg element of a picture, for a page, or, if FILE_OF_ITS_OWN, for a separate file with its own style. */
void report_svg_begin(FILE *file, double width, double height, const char *label, bool file_of_its_own);

#endif
