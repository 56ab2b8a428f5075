/* crew.h - threads to help one thread with work of a few microseconds: parts of a product, if one core cannot read its
 * operands fast enough.
 *
 * A helper polls for work for some ten microseconds, then sleeps until there is work. Every free thread, including the
 * owner, takes the next part: the owner never waits for a helper that has not begun a part. So a machine without a free
 * core loses little; but the result must not depend on which thread computes a part. */
#ifndef SL_SPMD_BASE_CREW_H
#define SL_SPMD_BASE_CREW_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_CREW_MOST = 64 }; /* threads, the owner among them */

struct sl_crew; /* opaque */

/* Starts THREADS - 1 helpers of the calling thread. They may run on any core the process may use. Fewer start if the
 * system does not allow more. NULL if THREADS is below 2, or if no helper has started: sl_crew_run then does all work
 * itself. */
struct sl_crew *sl_crew_open(int threads);
void sl_crew_close(struct sl_crew *crew);
/* The owner and its helpers; 1 if CREW is NULL. */
int sl_crew_threads(const struct sl_crew *crew);

/* Calls WORK(arg, part) for each of PARTS parts (at most 65535), and returns when all have ended. Only the owner may
 * call it, and not from within WORK. */
void sl_crew_run(struct sl_crew *crew, int parts, void (*work)(void *arg, int part), void *arg);

SL_END_C
#endif
