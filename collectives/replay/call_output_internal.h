/* call_output_internal.h - shared by recording and replaying: groups and channels by number, and results as contiguous
 * bytes.
 */
#ifndef SL_COLLECTIVES_REPLAY_CALL_OUTPUT_INTERNAL_H
#define SL_COLLECTIVES_REPLAY_CALL_OUTPUT_INTERNAL_H

#include "collectives/operations.h"
#include "collectives/replay/messages.h"

/* A group or channel opened by this coordinate. */
struct sl_replay_object {
    const void *handle; /* group->communicator or channel->state */
    int number;         /* -1: opened while recording was paused */
    uint32_t calls;     /* in the current block */
};

/* Bytes written by CALL to this coordinate's output, or 0. */
size_t sl_result_bytes(const struct sl_collective *call);
/* Copy these bytes from the output to TO, or from FROM to the output, in memory accessible to the host. */
void sl_result_read(const struct sl_collective *call, void *to);
void sl_result_write(const struct sl_collective *call, const void *from);

#endif
