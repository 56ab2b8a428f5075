/* verdict.h - the words of verdicts, the same on every engine: who waits for whom and where, which calls differ. */
#ifndef SL_COLLECTIVES_VERDICT_H
#define SL_COLLECTIVES_VERDICT_H

#include "collectives/collectives.h"

SL_BEGIN_C

/* A coordinate's latest call, as in `psum` `over "data"` `train.c:12`; NULL before any. */
struct sl_last_call {
    const char *verb, *object, *site;
};

/* `psum over "data" at train.c:12`, or "its start"; returns TEXT. */
char *sl_last_call_describe(const struct sl_last_call *place, char *text, size_t size);

/* Appends to a verdict; what does not fit is left out whole, and false returned. */
bool sl_verdict_add(struct sl_error *verdict, const char *format, ...) SL_PRINTF(2, 3);

/* "coordinate 5 (data=1, model=1)" */
enum { SL_VERDICT_NAME = 200 };
const char *sl_verdict_name(const struct sl_mesh *mesh, int coordinate, char text[SL_VERDICT_NAME]);

/* Headlines; lines of who waits follow. PLACE is where the peer was heard of last; NULL where that is not known. */
void sl_verdict_deadlock(struct sl_error *verdict, int waiting);
void sl_verdict_returned(struct sl_error *verdict, const struct sl_mesh *mesh, int peer, const char *place);
void sl_verdict_absent(struct sl_error *verdict, const struct sl_mesh *mesh, int peer, double seconds,
                       const char *place);

/* A line: COORDINATE waits for PEER in PLACE. False, and nothing added, where it does not fit. */
bool sl_verdict_add_wait(struct sl_error *verdict, const struct sl_mesh *mesh, int coordinate, int peer,
                         const char *place);
/* For the lines that did not fit. There is always room for it. */
void sl_verdict_add_more(struct sl_error *verdict, int lines);

/* Whether MINE and THEIRS, of the member at position RANK, are the same call. */
bool sl_calls_agree(const struct sl_collective *mine, const struct sl_collective *theirs, int rank);
/* MINE, of coordinate ME, and THEIRS, of coordinate PEER, differ. */
void sl_verdict_mismatch(struct sl_error *verdict, const struct sl_mesh *mesh, const struct sl_collective *mine, int me,
                         const struct sl_collective *theirs, int peer);

SL_END_C
#endif
