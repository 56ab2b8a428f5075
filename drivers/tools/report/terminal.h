/* terminal.h - plots and numbers in a terminal. */
#ifndef SL_DRIVERS_TOOLS_REPORT_TERMINAL_H
#define SL_DRIVERS_TOOLS_REPORT_TERMINAL_H

#include <stdio.h>

#include "drivers/tools/report/plots.h"

/* Capabilities of the terminal. */
struct report_terminal {
    FILE *file;
    int columns;
    bool unicode;  /* braille, eight dots per character; otherwise ASCII */
    bool coloured; /* a colour per run; otherwise a letter per run */
};

enum { REPORT_LEAST_COLUMNS = 40, REPORT_MOST_COLUMNS = 400 };

/* Returns the terminal's capabilities. COLUMNS 0: as in the environment, or 80. COLOURED: stdout is a terminal with
 * colours. Reads the locale. */
struct report_terminal report_terminal_of(FILE *file, int columns, bool coloured);

/* Draws PLOT; returns false if no run has its quantity. */
bool report_terminal_plot(const struct report_terminal *terminal, const struct report_plot *plot,
                          const struct report_runs *runs);
/* Prints the runs' numbers side by side, in several blocks if they are too many. */
void report_terminal_facts(const struct report_terminal *terminal, const struct report_runs *runs);

#endif
