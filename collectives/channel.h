/* channel.h - persistent one-way connections: a ring of slots from one coordinate to another.
 *
 * The sender acquires a slot, writes into it and posts it. The receiver takes it, reads it and releases it. Messages
 * arrive in the order in which they were posted. The slots belong to the channel, so engine local passes a message
 * without a copy. Both ends open the channel with the same arguments; the n-th opening of a pair at one end meets the
 * n-th at the other. A channel to oneself is opened once and is both ends. The engine frees channels when the run ends.
 *
 * The functions return SL_OK, SL_BAD_INPUT if they are used wrongly, or SL_FAILED once the run has ended. */
#ifndef SL_COLLECTIVES_CHANNEL_H
#define SL_COLLECTIVES_CHANNEL_H

#include "collectives/collectives.h"

SL_BEGIN_C

/* Opens this coordinate's end of the channel FROM -> TO; does not wait. SLOTS is the largest number of messages between
 * the two ends. A slot has BYTES, rounded up to a cache line. Both numbers must be at least 1. */
int sl_channel_open_at(struct sl_spmd *self, const char *site, struct sl_channel *channel, int from, int to,
                       size_t bytes, int slots);
#define sl_channel_open(self, ...) sl_channel_open_at(self, SL_HERE, __VA_ARGS__)

/* Bytes of the slots of such a channel at this coordinate. If each end has its own slots, both ends count them; if the
 * ends share them, only the sender does. */
size_t sl_channel_bytes(const struct sl_spmd *self, int from, int to, size_t bytes, int slots);

/* Sender: sets *SLOT to the next free slot. Waits until there is one. */
int sl_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
/* Sender: sends the acquired slot to the receiver. */
int sl_channel_post(struct sl_spmd *self, struct sl_channel *channel);

/* Receiver: sets *SLOT to the oldest posted slot, readable until it is released. Waits until there is one. */
int sl_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
/* Receiver: returns the taken slot to the sender. */
int sl_channel_release(struct sl_spmd *self, struct sl_channel *channel);

/* Promises that peers receive and release all messages posted by this coordinate even if it does nothing more, as at
 * the end of a pass through a pipeline. Does not wait. On engine nccl, steps with posts become GPU graphs only if they
 * make this promise before they end. */
void sl_channels_rest(struct sl_spmd *self);

SL_END_C
#endif
