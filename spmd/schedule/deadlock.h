/* deadlock.h - explains a deadlock: finds ranks that wait for each other. */
#ifndef SL_SPMD_SCHEDULE_DEADLOCK_H
#define SL_SPMD_SCHEDULE_DEADLOCK_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_WAITS_FOR_NOBODY = -1 }; /* the rank has nothing left to do */

/* WAITS_FOR [RANKS] holds, for each rank, the rank it waits for; at least one rank waits. Returns the length of the
 * shortest circle of ranks that wait for each other, and one of these ranks in *FIRST. Returns 0 if some rank waits,
 * directly or through others, for a rank that has nothing left to do; *FIRST is the rank before that one. WORK [2 *
 * RANKS] is scratch memory. */
int sl_deadlock_circle(int ranks, const int *waits_for, int *work, int *first);

SL_END_C
#endif
