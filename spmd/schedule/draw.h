/* draw.h - schedules for people: a coloured table on a terminal, a timeline for print. */
#ifndef SL_SPMD_SCHEDULE_DRAW_H
#define SL_SPMD_SCHEDULE_DRAW_H

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

/* The table of sl_schedule_print_table for a terminal of 256 colours that is COLUMNS wide: colours are microbatches,
 * shades loops, and a wide table goes on below. SL_FAILED without memory. */
int sl_schedule_print_terminal(const struct sl_schedule *schedule, int columns, FILE *file);

/* Writes a timeline in SVG: simulated milliseconds to the right, one row a rank, reductions in a lane below it; colours
 * are kinds of actions, shades loops, numbers microbatches. */
void sl_schedule_write_svg(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file);

SL_END_C
#endif
