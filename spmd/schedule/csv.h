/* csv.h - schedules as CSV files in PyTorch's format.
 *
 * Each line is a rank, and each cell an iteration. A cell holds a stage, an action (F, B, I or W) and a microbatch, as
 * in 4F0. An empty cell is an idle iteration. Two actions in a cell are written (1F6;6B2)OVERLAP_F_B. Blanks around
 * cells are ignored. Files with communication (SEND_F, UNSHARD, ...) can be read, too: these actions are skipped,
 * because sl_schedule_lower inserts its own. */
#ifndef SL_SPMD_SCHEDULE_CSV_H
#define SL_SPMD_SCHEDULE_CSV_H

#include <stdio.h>

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* Reads a table of compute actions. The table's name is the file's, without directory and .csv. Its placement follows
 * from the lines: each stage must be on one line only, and every line must have the same number of stages; a rank's
 * loops are its stages in ascending order. Times come from sl_schedule_clock. SL_BAD_INPUT names file, line and column;
 * SL_FAILED if there is no memory. sl_schedule_check reports missing actions. Free with sl_schedule_free. */
int sl_schedule_read_csv(struct sl_schedule *schedule, const char *path, struct sl_error *error);

/* Writes the compute actions of a table, lowered or not, in the cells of their times. For a sharded, lowered table,
 * also writes UNSHARD, RESHARD and REDUCE_GRAD, and each action in the cell after the previous one. SL_FAILED if FILE
 * cannot be written. */
int sl_schedule_write_csv(const struct sl_schedule *schedule, FILE *file);

SL_END_C
#endif
