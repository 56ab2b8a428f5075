/* batch.h - copies a coordinate's examples to memory that its device can read. */
#ifndef SL_LAYERS_MODULES_BATCH_H
#define SL_LAYERS_MODULES_BATCH_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Examples: inputs [rows, in] or tokens [rows], and labels [rows]. Each pointer may be NULL. */
struct sl_batch {
    const float *inputs;
    const int32_t *labels, *tokens;
};

/* Buffers for a batch: on the device, and on the host as pinned memory, from which a copy runs while the host goes on.
 * The pointers are NULL if host and device share memory. */
struct sl_batch_room {
    size_t rows, in;
    float *inputs, *host_inputs;
    int32_t *labels, *host_labels, *tokens, *host_tokens;
};

/* Takes buffers for batches of ROWS rows of IN columns. False if there is no memory. Free with sl_batch_room_close,
 * also after a failure. */
bool sl_batch_room_open(struct sl_batch_room *room, size_t rows, size_t in);
void sl_batch_room_close(struct sl_batch_room *room);
/* Bytes of device memory that sl_batch_room_open takes. */
size_t sl_batch_room_bytes(size_t rows, size_t in);

/* Returns BATCH at addresses that the device can read. Arrays that it cannot read are copied into ROOM, in the order of
 * the queue. The caller may change BATCH at once. The next call waits for the queue, then uses ROOM again. */
struct sl_batch sl_batch_bring(struct sl_batch_room *room, const struct sl_batch *batch);

SL_END_C
#endif
