/* channel.c - channels of the nccl engine: a communicator of two with a stream, and a ring of slots at each end,
 * in the ends' device memory.
 *
 * Post puts a send into the stream, behind what the compute queue does to the slot. Take puts the receive there when
 * the sender has posted, so no receive ever waits for a host, and there is nothing to draw off at the end; the compute
 * queue goes on behind it. The hosts count posts and releases, and wait for room and for messages. A channel to oneself
 * is a ring that both ends share. */
#include "collectives/nccl/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "spmd/device/device.h"

static bool is_own(const struct sl_nccl_channel *channel) { return channel->from == channel->to; }

/* ---- opening ---- */

/* To connect takes both ends: it is done by the watchdog, with a message from and to what lies behind the slots. The
 * wire is locked. */
static bool first_word(struct sl_nccl_wire *wire) {
    struct sl_nccl_channel *channel = sl_nccl_channel_of(wire);
    char *word = channel->memory + channel->stride * (size_t)channel->slots;
    return channel->end == SL_NCCL_SENDER
               ? SL_NCCL(wire, ncclSend(word, 1, ncclUint8, SL_NCCL_RECEIVER, wire->comm, wire->stream))
               : SL_NCCL(wire, ncclRecv(word, 1, ncclUint8, SL_NCCL_SENDER, wire->comm, wire->stream));
}

static struct sl_nccl_channel *new_channel(struct sl_nccl_coordinate *me, const struct sl_channel *wanted) {
    const size_t most = SIZE_MAX / 2 / (size_t)wanted->slots;
    struct sl_nccl_channel *channel = wanted->bytes < most ? calloc(1, sizeof *channel) : NULL;
    if (!channel) return NULL;
    channel->me = me;
    channel->from = wanted->from, channel->to = wanted->to;
    channel->end = me->self->coordinate == wanted->from ? SL_NCCL_SENDER : SL_NCCL_RECEIVER;
    channel->slots = wanted->slots, channel->bytes = wanted->bytes, channel->site = wanted->site;
    channel->stride = (wanted->bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    snprintf(channel->name, sizeof channel->name, "on channel %d -> %d, opened", wanted->from, wanted->to);
    snprintf(channel->wire.name, sizeof channel->wire.name, "%s", channel->name);
    channel->wire.first_word = first_word;
    channel->memory = sl_nccl_take(me, channel->stride * (size_t)channel->slots + SL_CACHE_LINE, false);
    channel->read = calloc((size_t)wanted->slots, sizeof *channel->read);
    channel->next = me->channels;
    me->channels = channel;
    return channel->memory && channel->read ? channel : NULL;
}

static bool open_events(struct sl_nccl_channel *channel) {
    bool made = true;
    for (int slot = 0; slot < channel->slots && made && channel->end == SL_NCCL_RECEIVER; slot++) {
        made = SL_NCCL_CUDA(&channel->wire, cudaEventCreateWithFlags(&channel->read[slot], cudaEventDisableTiming));
    }
    return made;
}

int sl_nccl_channel_open(struct sl_spmd *self, struct sl_channel *wanted) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    const struct sl_nccl_hosts *hosts = me->run->hosts;
    SL_TRY(sl_nccl_passed(me, hosts->enter(me, "opening", "a channel", wanted->site)));
    struct sl_nccl_channel *channel = new_channel(me, wanted);
    if (!channel)
        return sl_fail(self, SL_FAILED, "no memory for channel %d -> %d of %d slots of %zu bytes (opened at %s)",
                       wanted->from, wanted->to, wanted->slots, wanted->bytes, wanted->site);
    if (!is_own(channel)) SL_TRY(sl_nccl_wire_open(me, &channel->wire, channel->slots));
    if (!is_own(channel) && !open_events(channel)) return sl_nccl_fail(&channel->wire, "opening", wanted->site);
    SL_TRY(sl_nccl_passed(me, hosts->channel_open(channel)));
    wanted->state = channel;
    sl_budget_add(&self->held, SL_MEMORY_HANDOVER, channel->stride * (size_t)channel->slots);
    return SL_OK;
}

void sl_nccl_channels_close(struct sl_nccl_coordinate *me) {
    while (me->channels) {
        struct sl_nccl_channel *channel = me->channels;
        me->channels = channel->next;
        sl_nccl_wire_close(&channel->wire);
        for (int slot = 0; channel->read && slot < channel->slots; slot++) {
            if (channel->read[slot]) cudaEventDestroy(channel->read[slot]);
        }
        free(channel->read);
        free(channel);
    }
}

/* ---- the ends ---- */

static const char *const verb[2][2] = {{"acquire", "post"}, {"take", "release"}};

static char *memory_of(const struct sl_nccl_channel *channel, int slot) {
    return channel->memory + channel->stride * (size_t)slot;
}

/* Until the other end is open, and both are connected. */
static int meet(struct sl_nccl_channel *channel, const char *what) {
    if (is_own(channel) || channel->met) return SL_OK;
    SL_TRY(sl_nccl_passed(channel->me, channel->me->run->hosts->channel_meet(channel)));
    SL_TRY(sl_nccl_await_ready(&channel->wire, what, channel->site));
    channel->met = true;
    return SL_OK;
}

/* A send of the slot behind what has written it, or a receive behind what has read its last message. */
static bool enqueue(struct sl_nccl_channel *channel, int slot) {
    struct sl_nccl_wire *wire = &channel->wire;
    char *memory = memory_of(channel, slot);
    if (channel->end == SL_NCCL_SENDER)
        return sl_nccl_follow(wire) &&
               SL_NCCL(wire, ncclSend(memory, channel->bytes, ncclUint8, SL_NCCL_RECEIVER, wire->comm, wire->stream));
    return SL_NCCL_CUDA(wire, cudaStreamWaitEvent(wire->stream, channel->read[slot], 0)) &&
           SL_NCCL(wire, ncclRecv(memory, channel->bytes, ncclUint8, SL_NCCL_SENDER, wire->comm, wire->stream));
}

static bool note_read(struct sl_nccl_channel *channel, int slot) {
    struct sl_cuda_queue *queue = sl_nccl_queue(channel->me);
    if (is_own(channel) || !queue->busy) return true;
    return SL_NCCL_CUDA(&channel->wire, cudaEventRecord(channel->read[slot], sl_cuda_stream(queue)));
}

static int move(struct sl_nccl_channel *channel, int slot, const char *what) {
    struct sl_nccl_wire *wire = &channel->wire;
    if (is_own(channel)) return SL_OK;
    SL_TRY(meet(channel, what));
    if (!sl_nccl_lock(wire)) return sl_nccl_fail(wire, what, channel->site);
    const bool enqueued = enqueue(channel, slot);
    sl_nccl_unlock(wire);
    if (!enqueued) return sl_nccl_fail(wire, what, channel->site);
    SL_TRY(sl_nccl_await_ready(wire, what, channel->site));
    const bool marked = sl_nccl_mark(wire, slot, what, channel->site);
    return marked ? SL_OK : sl_nccl_fail(wire, what, channel->site);
}

/* The compute queue goes on behind the slot's message, which both hosts have put on its way. */
static int follow_message(struct sl_nccl_channel *channel, int slot, const char *what) {
    if (is_own(channel)) return SL_OK;
    sl_nccl_watch(&channel->wire, slot);
    return sl_nccl_lead(&channel->wire, slot) ? SL_OK : sl_nccl_fail(&channel->wire, what, channel->site);
}

/* Nothing is held back while a host waits for the other end, or the wire is locked. */
static int enter(struct sl_nccl_channel *channel, const char *what) {
    if (!is_own(channel)) sl_cuda_stream(sl_nccl_queue(channel->me));
    return sl_nccl_passed(channel->me, channel->me->run->hosts->enter(channel->me, what, channel->name, channel->site));
}

/* ---- the verbs ---- */

int sl_nccl_channel_acquire(struct sl_spmd *self, struct sl_channel *of, void **slot) {
    (void)self;
    struct sl_nccl_channel *channel = of->state;
    const char *what = verb[SL_NCCL_SENDER][0];
    const int at = channel->slot[SL_NCCL_SENDER];
    const uint32_t posted = channel->count[SL_NCCL_SENDER], slots = (uint32_t)channel->slots;
    SL_TRY(enter(channel, what));
    *slot = memory_of(channel, at);
    if (channel->holds[SL_NCCL_SENDER]) return SL_OK;
    const struct sl_nccl_hosts *hosts = channel->me->run->hosts;
    SL_TRY(sl_nccl_passed(channel->me, hosts->channel_wait(channel, SL_NCCL_SENDER, posted + 1 - slots)));
    if (posted >= slots) SL_TRY(follow_message(channel, at, what));
    channel->holds[SL_NCCL_SENDER] = true;
    return SL_OK;
}

int sl_nccl_channel_take(struct sl_spmd *self, struct sl_channel *of, const void **slot) {
    (void)self;
    struct sl_nccl_channel *channel = of->state;
    const char *what = verb[SL_NCCL_RECEIVER][0];
    const int at = channel->slot[SL_NCCL_RECEIVER];
    SL_TRY(enter(channel, what));
    *slot = memory_of(channel, at);
    if (channel->holds[SL_NCCL_RECEIVER]) return SL_OK;
    const struct sl_nccl_hosts *hosts = channel->me->run->hosts;
    const uint32_t next = channel->count[SL_NCCL_RECEIVER] + 1;
    SL_TRY(sl_nccl_passed(channel->me, hosts->channel_wait(channel, SL_NCCL_RECEIVER, next)));
    SL_TRY(move(channel, at, what));
    SL_TRY(follow_message(channel, at, what));
    channel->holds[SL_NCCL_RECEIVER] = true;
    return SL_OK;
}

static int hand_over(struct sl_spmd *self, struct sl_nccl_channel *channel, int end) {
    const char *what = verb[end][1];
    int *slot = &channel->slot[end];
    if (!channel->holds[end])
        return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: %s without %s (opened at %s)", channel->from, channel->to,
                       what, verb[end][0], channel->site);
    SL_TRY(enter(channel, what));
    if (end == SL_NCCL_SENDER) SL_TRY(move(channel, *slot, what));
    if (end == SL_NCCL_RECEIVER && !note_read(channel, *slot)) return sl_nccl_fail(&channel->wire, what, channel->site);
    channel->holds[end] = false;
    channel->count[end]++;
    *slot = *slot + 1 < channel->slots ? *slot + 1 : 0;
    channel->me->run->hosts->channel_raise(channel, end, channel->count[end]);
    return SL_OK;
}

int sl_nccl_channel_post(struct sl_spmd *self, struct sl_channel *channel) {
    return hand_over(self, channel->state, SL_NCCL_SENDER);
}

int sl_nccl_channel_release(struct sl_spmd *self, struct sl_channel *channel) {
    return hand_over(self, channel->state, SL_NCCL_RECEIVER);
}
