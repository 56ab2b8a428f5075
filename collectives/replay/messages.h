/* messages.h - messages received by one coordinate, in one block of memory: results of collectives, and slots of
 * channels.
 *
 * A message has a head of 64 bytes, then its own bytes, padded to a multiple of 64, so a replay can use them in place.
 * Numbers in the head are little-endian:
 *
 *     bytes 0-3    enum sl_message_kind
 *     bytes 4-7    the operation (enum sl_operation); 0 for a slot
 *     bytes 8-11   the group's or channel's number, in the order in which the coordinate opened them, from 0
 *     bytes 12-15  the number of the call, or of the slot, in this block, from 0 for each group and channel
 *     bytes 16-23  bytes of the message
 *     bytes 24-63  zeros
 *
 * The numbers do not depend on when calls end. */
#ifndef SL_COLLECTIVES_REPLAY_MESSAGES_H
#define SL_COLLECTIVES_REPLAY_MESSAGES_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_MESSAGE_ALIGN = 64 };

enum sl_message_kind { SL_MESSAGE_RESULT = 1, SL_MESSAGE_SLOT };

struct sl_message {
    uint32_t kind, operation, object, number;
    uint64_t bytes;
    char zeros[40];
};

/* Zero-initialize. Memory grows to the largest contents so far and never shrinks. */
struct sl_messages {
    char *block; /* aligned to 64 bytes */
    size_t size, room;
};

/* Appends MESSAGE and returns the address to which the caller writes its bytes. NULL without memory. */
void *sl_messages_add(struct sl_messages *messages, const struct sl_message *message);
/* Returns the message at *AT, which begins at 0, with its bytes behind it, and moves *AT behind them. NULL at the end,
 * or if the block is damaged. */
const struct sl_message *sl_messages_next(const struct sl_messages *messages, size_t *at);
/* Whether the block consists of complete messages only. */
bool sl_messages_are_sound(const struct sl_messages *messages);
void sl_messages_free(struct sl_messages *messages);

SL_END_C
#endif
