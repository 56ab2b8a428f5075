/* draw.h - readable forms of schedules: a folded table with its legend, a timeline. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_DRAW_H
#define SL_SPMD_SCHEDULE_DRAWING_DRAW_H

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

/* Prints the table of sl_schedule_print_table in blocks at most COLUMNS wide, one below the other, each with its
 * iterations above it. COLOURED: for a terminal with 256 colours; colours are microbatches, shades are loops. SL_FAILED
 * if there is no memory. */
int sl_schedule_print_folded(const struct sl_schedule *schedule, int columns, bool coloured, FILE *file);

/* Prints a legend: an empty line, then a line for each notation in the table, and the colours if it is COLOURED. */
void sl_schedule_print_legend(const struct sl_schedule *schedule, bool coloured, FILE *file);

/* Writes a timeline in SVG: simulated milliseconds to the right, one row per rank, and a rank's reductions in a lane
 * below its row. Colours are kinds of actions, shades are loops, numbers are microbatches. A long timeline is
 * folded. */
void sl_schedule_write_svg(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file);
/* The same timeline as a page for browsers (page.h). */
void sl_schedule_write_page(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file);

SL_END_C
#endif
