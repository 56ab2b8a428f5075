/* parts_internal.h - what recording and replaying share: groups and channels by number, and results as contiguous
 * bytes. */
#ifndef SL_COLLECTIVES_REPLAY_PARTS_INTERNAL_H
#define SL_COLLECTIVES_REPLAY_PARTS_INTERNAL_H

#include "collectives/operations.h"
#include "collectives/replay/messages.h"

/* A group or channel that this coordinate has opened. */
struct sl_replay_object {
    const void *handle; /* group->communicator or channel->state */
    int number;         /* -1: it was opened while nothing was recorded */
    uint32_t calls;     /* in the present block */
};

/* Bytes of what CALL leaves in this coordinate's output; 0 if it leaves it as it is. */
size_t sl_result_bytes(const struct sl_collective *call);
/* Copies them from the output to TO, or from FROM to the output. The host reads and writes the output's memory. */
void sl_result_read(const struct sl_collective *call, void *to);
void sl_result_write(const struct sl_collective *call, const void *from);

#endif
