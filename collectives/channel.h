/* channel.h - persistent point-to-point: a ring of slots from one coordinate to another.
 *
 * The sender acquires a slot, writes into it and posts it; the receiver takes it, reads it and releases it, all in
 * order. The slots are the channel's, so on the local engine a hand-over copies nothing. Both ends open the channel
 * with the same arguments; the n-th opening of a pair at one end meets the n-th at the other. A channel to oneself is
 * opened once and is both ends. */
#ifndef SL_COLLECTIVES_CHANNEL_H
#define SL_COLLECTIVES_CHANNEL_H

#include "collectives/collectives.h"

SL_BEGIN_C

/* SLOTS is how many messages may lie between the two ends; BYTES is rounded up to a cache line. */
int sl_channel_open_at(struct sl_spmd *self, const char *site, struct sl_channel *channel, int from, int to,
                       size_t bytes, int slots);
#define sl_channel_open(self, ...) sl_channel_open_at(self, SL_HERE, __VA_ARGS__)

/* Sender: *SLOT is the next free slot (waits for one); post hands the acquired slot over. */
int sl_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
int sl_channel_post(struct sl_spmd *self, struct sl_channel *channel);

/* Receiver: *SLOT is the oldest posted slot (waits for one), readable until release. */
int sl_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
int sl_channel_release(struct sl_spmd *self, struct sl_channel *channel);

SL_END_C
#endif
