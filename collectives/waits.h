/* waits.h - who waits for whom when a run has ended because somebody waits in vain: the verdict's graph, as data.
 *
 * Engines fill in engine->waits, unless it is NULL, where a verdict says that somebody waits. Each coordinate waits for
 * one other at most, so that the graph has a line a coordinate. */
#ifndef SL_COLLECTIVES_WAITS_H
#define SL_COLLECTIVES_WAITS_H

#include "collectives/collectives.h"

SL_BEGIN_C

enum { SL_MODULE_CALLED = 80 }; /* bytes of a module's name in a verdict */

/* A coordinate's latest call, as in `psum` `over "data"` `train.c:12`, all NULL before the first call; and what it was
 * at when it called. */
struct sl_last_call {
    const char *verb, *object, *site;
    struct sl_doing doing;         /* its module apart: */
    char module[SL_MODULE_CALLED]; /* "": none */
};

/* The module's name is copied. */
void sl_last_call_note(struct sl_last_call *place, const char *verb, const char *object, const char *site,
                       const struct sl_doing *doing);

enum sl_waiting_state { SL_WAITING_UNKNOWN, SL_COMPUTES, SL_WAITS, SL_RETURNED };

/* One coordinate: texts are as in struct sl_last_call, cut where they are too long, and "" where there is none. */
struct sl_waiting {
    int32_t state, peer; /* SL_WAITS: for whom; otherwise -1 */
    int32_t stage, microbatch, action;
    int64_t steps; /* that have begun */
    char verb[24], object[96], site[104], what[32], module[SL_MODULE_CALLED];
};

struct sl_waits {
    int coordinates;               /* 0: no run has ended so */
    struct sl_waiting *coordinate; /* the mesh's [size], the caller's */
};

/* "unknown", which a coordinate is that has not answered; "computes", "waits", "returned". */
const char *sl_waiting_name(int state);
/* Fills in *WAITING, for PEER where the state is SL_WAITS. */
void sl_waiting_note(struct sl_waiting *waiting, enum sl_waiting_state state, int peer,
                     const struct sl_last_call *place);

SL_END_C
#endif
