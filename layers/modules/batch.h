/* batch.h - brings a coordinate's examples to where its device reaches them. */
#ifndef SL_LAYERS_MODULES_BATCH_H
#define SL_LAYERS_MODULES_BATCH_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Examples: inputs [rows, in] or tokens [rows], labels [rows]; any of them may be NULL. */
struct sl_batch {
    const float *inputs;
    const int32_t *labels, *tokens;
};

/* Room on the device, and beside it in host memory from where copies go on while the host does. Empty where the device
 * reaches the host's memory. */
struct sl_batch_room {
    size_t rows, in;
    float *inputs, *host_inputs;
    int32_t *labels, *host_labels, *tokens, *host_tokens;
};

/* Takes room for batches of ROWS rows of IN columns. False without memory. Free with sl_batch_room_close. */
bool sl_batch_room_open(struct sl_batch_room *room, size_t rows, size_t in);
void sl_batch_room_close(struct sl_batch_room *room);
/* Bytes that opening takes of the device's memory. */
size_t sl_batch_room_bytes(size_t rows, size_t in);

/* BATCH as the device can read it, copied in the order of the queue where need be: BATCH may be changed at once, the
 * room is used again by the next call, which waits for the queue first. */
struct sl_batch sl_batch_bring(struct sl_batch_room *room, const struct sl_batch *batch);

SL_END_C
#endif
