/* generate.h - the generators behind sl_schedule_make, one a family of schedules.
 *
 * A generator gets an empty table whose stages have been placed; its name tells which member of the family is wanted.
 * It appends the compute actions of each rank in order. Numbers that the algorithm does not allow are SL_BAD_INPUT with
 * the rule that is broken; SL_FAILED without a message: no memory. Times are given afterwards (sl_schedule_clock),
 * unless the table of generators says that this one gives them. */
#ifndef SL_SPMD_SCHEDULE_GENERATE_H
#define SL_SPMD_SCHEDULE_GENERATE_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

typedef int sl_schedule_generator(struct sl_schedule *schedule, struct sl_error *error);

/* looped.c: gpipe, looped-bfs (Huang et al. 2019; Lamy-Poirier 2023), looped-dfs. They set the times. */
sl_schedule_generator sl_generate_looped;
/* 1f1b.c: 1f1b, pipedream-flush, interleaved-1f1b (Narayanan et al. 2021), interleaved-zb (Qi et al. 2023). */
sl_schedule_generator sl_generate_1f1b;
/* zero_bubble.c: zbv (Qi et al. 2023). */
sl_schedule_generator sl_generate_zero_bubble;
/* dualpipe.c: dualpipev (DeepSeek-AI 2024, cut in half). */
sl_schedule_generator sl_generate_dualpipe;

SL_END_C
#endif
