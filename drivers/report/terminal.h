/* terminal.h - plots and numbers in a terminal. */
#ifndef SL_DRIVERS_REPORT_TERMINAL_H
#define SL_DRIVERS_REPORT_TERMINAL_H

#include <stdio.h>

#include "drivers/report/plots.h"

/* What the terminal can show. */
struct report_terminal {
    FILE *file;
    int columns;
    bool unicode;  /* braille, eight dots a character; otherwise ASCII */
    bool coloured; /* runs have colours; otherwise each has a letter of its own */
};

enum { REPORT_LEAST_COLUMNS = 40, REPORT_MOST_COLUMNS = 400 };

/* COLUMNS 0: as the environment says, or 80. COLOURED: stdout is a terminal that shows colours. Reads the locale. */
struct report_terminal report_terminal_of(FILE *file, int columns, bool coloured);

/* Draws PLOT. False: no run has it. */
bool report_terminal_plot(const struct report_terminal *terminal, const struct report_plot *plot,
                          const struct report_runs *runs);
/* The runs' numbers side by side, in blocks where they are too many. */
void report_terminal_facts(const struct report_terminal *terminal, const struct report_runs *runs);

#endif
