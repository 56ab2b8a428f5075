/* draw.h - schedules for people: a coloured table on a terminal, a timeline for print. */
#ifndef SL_SPMD_SCHEDULE_DRAW_H
#define SL_SPMD_SCHEDULE_DRAW_H

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

/* Prints the table of sl_schedule_print_table on a terminal with 256 colours and COLUMNS columns. Colours are
 * microbatches, shades are loops. A table that is too wide goes on below. SL_FAILED if there is no memory. */
int sl_schedule_print_terminal(const struct sl_schedule *schedule, int columns, FILE *file);

/* Writes a timeline in SVG: simulated milliseconds to the right, one row for each rank, and a rank's reductions in a
 * lane below its row. Colours are kinds of actions, shades are loops, numbers are microbatches. */
void sl_schedule_write_svg(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file);

SL_END_C
#endif
