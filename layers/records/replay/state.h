/* state.h - a coordinate's own state between two steps: its values in all forms, and its part of the optimizer's state.
 * All other state follows from the step's number and the seed. */
#ifndef SL_LAYERS_RECORDS_REPLAY_STATE_H
#define SL_LAYERS_RECORDS_REPLAY_STATE_H

#include "layers/training/trainer.h"

SL_BEGIN_C

/* Reads BYTES from DATA, or writes them to it. Returns 0, or an errno. */
typedef int sl_state_move(void *arg, void *data, size_t bytes);

/* Bytes of the state of TRAINER, which is open. */
size_t sl_state_bytes(struct sl_trainer *trainer);
/* Passes the state to MOVE, piece by piece, in an order determined by the layout. SL_FAILED if MOVE fails. */
int sl_state_read(struct sl_trainer *trainer, sl_state_move *move, void *arg);
/* Restores the state from MOVE, in the same order. */
int sl_state_write(struct sl_trainer *trainer, sl_state_move *move, void *arg);

SL_END_C
#endif
