/* crew.h - threads that help one thread with work of a few microseconds: parts of a product that one core cannot read
 * fast enough.
 *
 * A helper looks out for work for some ten microseconds, and then sleeps until there is some. Whoever is free takes the
 * next part, the owner too: it never waits for a helper that has not begun one. So a machine without a free core loses
 * little, and which thread computes a part must not change what comes out. */
#ifndef SL_SPMD_BASE_CREW_H
#define SL_SPMD_BASE_CREW_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_CREW_MOST = 64 }; /* threads, the owner among them */

struct sl_crew; /* opaque */

/* Starts THREADS - 1 helpers of the calling thread, which may run wherever the process may. Fewer start where the
 * system gives no more. NULL if THREADS is below 2, or none has started: then sl_crew_run does all by itself. */
struct sl_crew *sl_crew_open(int threads);
void sl_crew_close(struct sl_crew *crew);
/* The owner and those who help it; 1 where CREW is NULL. */
int sl_crew_threads(const struct sl_crew *crew);

/* Calls WORK(arg, part) for each of PARTS parts (at most 65535), and returns when all have ended. Only the owner may
 * call it, and not from within WORK. */
void sl_crew_run(struct sl_crew *crew, int parts, void (*work)(void *arg, int part), void *arg);

SL_END_C
#endif
