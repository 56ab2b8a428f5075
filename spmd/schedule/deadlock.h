/* deadlock.h - who waits for whom, when nobody can move any more. */
#ifndef SL_SPMD_SCHEDULE_DEADLOCK_H
#define SL_SPMD_SCHEDULE_DEADLOCK_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_WAITS_FOR_NOBODY = -1 }; /* it has nothing left to do */

/* WAITS_FOR [RANKS] has the rank that each waits for. Returns the number of ranks in the shortest circle of ranks that
 * wait for each other, and in *FIRST one of them; 0 where a rank waits, at the end, for one that has nothing left to
 * do, and in *FIRST the one before it. At least one rank waits. WORK [2 * RANKS] is for finding out. */
int sl_deadlock_circle(int ranks, const int *waits_for, int *work, int *first);

SL_END_C
#endif
