/* csv.h - schedules as CSV files in PyTorch's format.
 *
 * A row a rank, a cell an iteration: stage, action (F, B, I, W), microbatch, as in 4F0; empty: idle; two that share a
 * cell as in (1F6;6B2)OVERLAP_F_B. Blanks around cells do not matter. Files with communication (SEND_F, UNSHARD, ...)
 * can be read as well: it is left out, as sl_schedule_lower inserts our own. */
#ifndef SL_SPMD_SCHEDULE_CSV_H
#define SL_SPMD_SCHEDULE_CSV_H

#include <stdio.h>

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* Reads a table of compute actions; its name is the file's without directory and .csv, its placement follows from the
 * rows: every stage on one row, every row the same number of stages, loops in ascending order of stages. Times come
 * from sl_schedule_clock. SL_BAD_INPUT names file, line and column, SL_FAILED: no memory. Whether every action is there
 * is for sl_schedule_check to say. Free with sl_schedule_free. */
int sl_schedule_read_csv(struct sl_schedule *schedule, const char *path, struct sl_error *error);

/* Writes the compute actions of a table, lowered or not, in the cells that their times say. SL_FAILED: FILE does not
 * take them. */
int sl_schedule_write_csv(const struct sl_schedule *schedule, FILE *file);

SL_END_C
#endif
