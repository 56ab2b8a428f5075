/* failing.h - an engine on top of another one: at chosen calls it makes a coordinate fail, so users see how a run ends,
 * or goes on, when one of its coordinates does. */
#ifndef SL_COLLECTIVES_FAILING_H
#define SL_COLLECTIVES_FAILING_H

#include "spmd/engine.h"

SL_BEGIN_C

/* A coordinate fails at its call number CALL (from 0) of the engine after the beginning of STEP. Starts, waits, taken
 * slots and signs of progress count as calls. */
struct sl_fault {
    int coordinate;
    int64_t step, call;
    bool happened; /* each happens once */
};

struct sl_failing; /* opaque; each coordinate has its own */

/* Puts the engine between SELF and its engine, if one of the COUNT faults FAULT is this coordinate's and has not
 * happened; otherwise *FAILING becomes NULL. The faults must outlive it. SL_FAILED without memory. */
int sl_failing_open(struct sl_failing **failing, struct sl_spmd *self, struct sl_fault *fault, int count);
/* Restores SELF's engine and frees FAILING, which may be NULL. The program's last call. */
void sl_failing_close(struct sl_failing *failing, struct sl_spmd *self);
/* STEP begins. FAILING may be NULL. */
void sl_failing_begin_step(struct sl_failing *failing, int64_t step);

SL_END_C
#endif
