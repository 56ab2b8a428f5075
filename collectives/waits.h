/* waits.h - the graph of a verdict on an endless wait, as data: the peer for which each coordinate waited.
 *
 * If a verdict reports such a wait, engines fill in engine->waits, unless it is NULL. Each coordinate waits for at most
 * one other, so the graph has one line per coordinate. */
#ifndef SL_COLLECTIVES_WAITS_H
#define SL_COLLECTIVES_WAITS_H

#include "collectives/collectives.h"

SL_BEGIN_C

enum { SL_MODULE_CALLED = 80 }; /* bytes of a module's name in a verdict */

/* A coordinate's latest call, as in `psum` `over "data"` `train.c:12`, all NULL before the first call; and its activity
 * at this call. */
struct sl_last_call {
    const char *verb, *object, *site;
    struct sl_doing doing;         /* except its module: */
    char module[SL_MODULE_CALLED]; /* "": none */
};

/* Fills in PLACE; the module's name is copied. */
void sl_last_call_note(struct sl_last_call *place, const char *verb, const char *object, const char *site,
                       const struct sl_doing *doing);

enum sl_waiting_state { SL_WAITING_UNKNOWN, SL_COMPUTES, SL_WAITS, SL_RETURNED };

/* One coordinate. Texts are as in struct sl_last_call, truncated to fit; "" if there is none. */
struct sl_waiting {
    int32_t state, peer; /* SL_WAITS: the peer it waits for; otherwise -1 */
    int32_t stage, microbatch, action;
    int64_t steps; /* steps begun */
    char verb[24], object[96], site[104], what[32], module[SL_MODULE_CALLED];
};

struct sl_waits {
    int coordinates;               /* 0: no run has ended with such a wait */
    struct sl_waiting *coordinate; /* [size of the mesh], allocated by the caller */
};

/* "unknown" (no answer from the coordinate), "computes", "waits" or "returned". */
const char *sl_waiting_name(int state);
/* Fills in *WAITING; PEER is used only if the state is SL_WAITS. */
void sl_waiting_note(struct sl_waiting *waiting, enum sl_waiting_state state, int peer,
                     const struct sl_last_call *place);

SL_END_C
#endif
