/* channel.c - channels of the nccl engine: a communicator of two with a stream, and a ring of slots at each end, in the
 * ends' device memory.
 *
 * Post enqueues a send behind the compute queue's work on the slot. Take enqueues the receive when the sender has
 * posted, so no receive is left over at the end; the compute queue continues behind it. The hosts count posts and
 * releases, and wait for free slots and for messages. A channel to oneself is one ring for both ends.
 *
 * The four calls are recorded on the queue's tape, so that messages become parts of graphs of a step (graphs.c). In a
 * replayed step the host counts at once, and waits for its peers' counts when all its work has been enqueued: a receive
 * may wait for a host whose send is held back for a graph as well. A graph ends behind its sends; if the program has
 * promised that all messages are taken (sl_channels_rest), the host asks for that, too. */
#include "collectives/nccl/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "spmd/device/device.h"

static bool is_own(const struct sl_nccl_channel *channel) { return channel->from == channel->to; }

/* ---- opening ---- */

/* Connecting needs both ends: the watchdog does it, with a message in the memory behind the slots. The wire is locked.
 */
static bool first_word(struct sl_nccl_wire *wire) {
    struct sl_nccl_channel *channel = sl_nccl_channel_of(wire);
    char *word = channel->memory + channel->stride * (size_t)channel->slots;
    return channel->end == SL_NCCL_SENDER
               ? SL_NCCL(wire, ncclSend(word, 1, ncclUint8, SL_NCCL_RECEIVER, wire->comm, wire->stream))
               : SL_NCCL(wire, ncclRecv(word, 1, ncclUint8, SL_NCCL_SENDER, wire->comm, wire->stream));
}

/* Number of slots with events; a channel to oneself has none. */
static int events(const struct sl_nccl_channel *channel) {
    return channel->at && !is_own(channel) ? channel->slots : 0;
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
    channel->at = calloc((size_t)wanted->slots, sizeof *channel->at);
    channel->open = -1;
    channel->next = me->channels;
    me->channels = channel;
    return channel->memory && channel->at ? channel : NULL;
}

static bool open_event(struct sl_nccl_wire *wire, cudaEvent_t *event) {
    return *event || SL_NCCL_CUDA(wire, cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

static bool open_events(struct sl_nccl_channel *channel) {
    struct sl_nccl_wire *wire = &channel->wire;
    bool made = open_event(wire, &channel->me->early);
    for (int slot = 0; slot < events(channel) && made; slot++) {
        made = open_event(wire, &channel->at[slot].moved) &&
               (channel->end == SL_NCCL_SENDER || open_event(wire, &channel->at[slot].read));
    }
    return made;
}

static int open_wire(struct sl_nccl_channel *channel) {
    channel->wire.state = channel->end == SL_NCCL_SENDER ? SL_NCCL_OPENING : SL_NCCL_APART;
    SL_TRY(sl_nccl_wire_open(channel->me, &channel->wire, channel->slots));
    if (!open_events(channel)) return sl_nccl_fail(&channel->wire, "opening", channel->site);
    return sl_nccl_passed(channel->me, sl_nccl_ends_open(channel));
}

int sl_nccl_channel_open(struct sl_spmd *self, struct sl_channel *wanted) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    SL_TRY(sl_nccl_passed(me, sl_nccl_enter(me, "opening", "a channel", wanted->site)));
    sl_nccl_branch(me, true);
    struct sl_nccl_channel *channel = new_channel(me, wanted);
    if (!channel)
        return sl_fail(self, SL_FAILED, "no memory for channel %d -> %d of %d slots of %zu bytes (opened at %s)",
                       wanted->from, wanted->to, wanted->slots, wanted->bytes, wanted->site);
    SL_TRY(sl_nccl_channel_line(channel));
    if (!is_own(channel)) SL_TRY(open_wire(channel));
    wanted->state = channel;
    sl_budget_add(&self->held, SL_MEMORY_HANDOVER, channel->stride * (size_t)channel->slots);
    return SL_OK;
}

void sl_nccl_channels_close(struct sl_nccl_coordinate *me) {
    while (me->channels) {
        struct sl_nccl_channel *channel = me->channels;
        me->channels = channel->next;
        sl_nccl_wire_close(&channel->wire);
        for (int slot = 0; slot < events(channel); slot++) {
            if (channel->at[slot].moved) cudaEventDestroy(channel->at[slot].moved);
            if (channel->at[slot].read) cudaEventDestroy(channel->at[slot].read);
        }
        free(channel->at);
        free(channel);
    }
    if (me->early) cudaEventDestroy(me->early);
    me->early = NULL;
}

/* ---- entries of the tape ---- */

/* The argument: the same bytes for the same message. */
struct message {
    struct sl_nccl_channel *channel;
    size_t slot;
};

static char *memory_of(const struct sl_nccl_channel *channel, int slot) {
    return channel->memory + channel->stride * (size_t)slot;
}

static bool record(struct sl_nccl_wire *wire, cudaEvent_t event, cudaStream_t stream) {
    return SL_NCCL_CUDA(wire, cudaEventRecord(event, stream));
}
static bool await(struct sl_nccl_wire *wire, cudaStream_t stream, cudaEvent_t event) {
    return SL_NCCL_CUDA(wire, cudaStreamWaitEvent(stream, event, 0));
}

/* Lets a receive begin behind the reader of the slot's last message. If the reader was in another stretch, the receive
 * begins behind the first receive of its own graph, or, outside graphs, behind all work in the queue. */
static bool follow_reader(struct sl_cuda_queue *queue, struct sl_nccl_channel *channel, const struct sl_nccl_slot *at) {
    struct sl_nccl_coordinate *me = channel->me;
    struct sl_nccl_wire *wire = &channel->wire;
    if (at->read_in == queue->stretch) return await(wire, wire->stream, at->read);
    if (!sl_cuda_captures(queue))
        return record(wire, wire->before, queue->stream) && await(wire, wire->stream, wire->before);
    if (me->early_in != queue->stretch && !record(wire, me->early, queue->stream)) return false;
    me->early_in = queue->stretch;
    return await(wire, wire->stream, me->early);
}

static bool enqueue_receive(struct sl_cuda_queue *queue, struct sl_nccl_channel *channel, int slot) {
    struct sl_nccl_wire *wire = &channel->wire;
    return follow_reader(queue, channel, &channel->at[slot]) &&
           SL_NCCL(wire, ncclRecv(memory_of(channel, slot), channel->bytes, ncclUint8, SL_NCCL_SENDER, wire->comm,
                                  wire->stream));
}

static bool enqueue_send(struct sl_cuda_queue *queue, struct sl_nccl_channel *channel, int slot) {
    struct sl_nccl_wire *wire = &channel->wire;
    return record(wire, wire->before, queue->stream) && await(wire, wire->stream, wire->before) &&
           SL_NCCL(wire, ncclSend(memory_of(channel, slot), channel->bytes, ncclUint8, SL_NCCL_RECEIVER, wire->comm,
                                  wire->stream));
}

static const char *const verb[2][2] = {{"acquire", "post"}, {"take", "release"}};

/* This end's call to move a message. */
static const char *mover(const struct sl_nccl_channel *channel) { return verb[channel->end][!channel->end]; }

/* Events may be recorded only when NCCL has finished enqueueing. If the message is not held back, its flight ends here,
 * too. */
static bool move(struct sl_cuda_queue *queue, const struct message *m,
                 bool (*enqueue)(struct sl_cuda_queue *, struct sl_nccl_channel *, int)) {
    struct sl_nccl_channel *channel = m->channel;
    struct sl_nccl_wire *wire = &channel->wire;
    struct sl_nccl_slot *at = &channel->at[m->slot];
    const char *what = mover(channel);
    const int slot = (int)m->slot;
    if (!sl_nccl_lock(wire)) return false;
    wire->captured = wire->captured || sl_cuda_captures(queue);
    bool done = enqueue(queue, channel, slot);
    if (done && !sl_nccl_get_ready(wire, what, channel->site)) return false;
    done = done && record(wire, at->moved, wire->stream);
    if (done && sl_cuda_course(queue) != SL_CUDA_LATER) done = sl_nccl_mark(wire, slot, what, channel->site);
    at->moved_in = queue->stretch;
    sl_nccl_unlock(wire);
    return done;
}

bool sl_nccl_send(struct sl_cuda_queue *queue, const void *argument) {
    const struct message *m = argument;
    if (!move(queue, m, enqueue_send)) return sl_nccl_refused(queue, &m->channel->wire);
    m->channel->open = (int)m->slot;
    return true;
}

static bool receive(struct sl_cuda_queue *queue, const void *argument) {
    const struct message *m = argument;
    struct sl_nccl_wire *wire = &m->channel->wire;
    return (move(queue, m, enqueue_receive) && await(wire, queue->stream, m->channel->at[m->slot].moved)) ||
           sl_nccl_refused(queue, wire);
}

/* Records the end of the compute queue's reads of the slot. */
static bool note_read(struct sl_cuda_queue *queue, const void *argument) {
    const struct message *m = argument;
    struct sl_nccl_wire *wire = &m->channel->wire;
    struct sl_nccl_slot *at = &m->channel->at[m->slot];
    at->read_in = queue->stretch;
    return record(wire, at->read, queue->stream) || sl_nccl_refused(queue, wire);
}

/* Lets the compute queue write into the slot. No wait is needed behind the graph with the send, or behind a join. */
static bool reuse(struct sl_cuda_queue *queue, const void *argument) {
    const struct message *m = argument;
    struct sl_nccl_channel *channel = m->channel;
    const struct sl_nccl_slot *at = &channel->at[m->slot];
    if (channel->open == (int)m->slot) channel->open = -1;
    return at->moved_in != queue->stretch || await(&channel->wire, queue->stream, at->moved) ||
           sl_nccl_refused(queue, &channel->wire);
}

bool sl_nccl_rest(struct sl_cuda_queue *queue, const void *argument) {
    (void)queue, (void)argument;
    return true;
}

/* The last send ends behind the earlier ones. */
void sl_nccl_channels_join(struct sl_nccl_coordinate *me, bool lost) {
    struct sl_cuda_queue *queue = sl_nccl_queue(me);
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        const int slot = channel->open;
        channel->open = -1;
        if (slot >= 0 && !lost && channel->at[slot].moved_in == queue->stretch &&
            !await(&channel->wire, queue->stream, channel->at[slot].moved))
            sl_nccl_refused(queue, &channel->wire);
    }
}

/* Marks the ends of held messages: a message in a graph has ended with it. */
void sl_nccl_channels_mark(struct sl_nccl_coordinate *me) {
    const struct sl_cuda_queue *queue = sl_nccl_queue(me);
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        for (int slot = 0; slot < events(channel); slot++) {
            const bool by_itself = channel->at[slot].moved_in == queue->stretch;
            if (!channel->at[slot].held) continue;
            channel->at[slot].held = false;
            record(&channel->wire, channel->wire.flight[slot].done, by_itself ? channel->wire.stream : queue->stream);
        }
    }
}

/* ---- ends ---- */

const char *sl_nccl_waiting(const struct sl_nccl_channel *channel) { return verb[channel->end][0]; }

static enum sl_cuda_course course_of(const struct sl_nccl_channel *channel) {
    return sl_cuda_course(sl_nccl_queue(channel->me));
}

/* Nothing is held back while a host waits for the other end, or the wire is locked. A recording tape is not
 * interrupted. */
static void let_go(struct sl_nccl_channel *channel) {
    if (!is_own(channel) && course_of(channel) != SL_CUDA_NOTED) sl_cuda_stream(sl_nccl_queue(channel->me));
}

static int enter(struct sl_nccl_channel *channel, const char *what) {
    if (course_of(channel) == SL_CUDA_AT_ONCE) let_go(channel);
    return sl_nccl_passed(channel->me, sl_nccl_enter(channel->me, what, channel->name, channel->site));
}

/* Waits until the other end is open, and both are connected. */
static int meet(struct sl_nccl_channel *channel, const char *what) {
    if (is_own(channel) || channel->met) return SL_OK;
    let_go(channel);
    SL_TRY(sl_nccl_passed(channel->me, sl_nccl_ends_meet(channel)));
    SL_TRY(sl_nccl_await_ready(&channel->wire, what, channel->site));
    channel->met = true;
    return SL_OK;
}

static int enqueue(struct sl_nccl_channel *channel, sl_cuda_run *run, int slot, const char *what) {
    const struct message m = {channel, (size_t)slot};
    if (is_own(channel) || sl_cuda_enqueue(sl_nccl_queue(channel->me), run, &m, sizeof m)) return SL_OK;
    return sl_nccl_fail(&channel->wire, what, channel->site);
}

/* The slot's message may wait for its graph: its flight then ends when all work has been enqueued. */
static int hold(struct sl_nccl_channel *channel, int slot, const char *what) {
    struct sl_nccl_wire *wire = &channel->wire;
    if (is_own(channel) || course_of(channel) != SL_CUDA_LATER) return SL_OK;
    if (!sl_nccl_lock(wire)) return sl_nccl_fail(wire, what, channel->site);
    sl_nccl_note(wire, slot, what, channel->site);
    sl_nccl_unlock(wire);
    channel->at[slot].held = sl_nccl_queue(channel->me)->owes = true;
    return SL_OK;
}

/* Waits until the other end's count is TARGET; in a replayed step, later. */
static int await_other(struct sl_nccl_channel *channel, int end, int slot, uint32_t target, bool *owes) {
    *owes = !is_own(channel) && channel->met && sl_nccl_owe_message(channel, slot, target);
    if (*owes) return SL_OK;
    let_go(channel);
    return sl_nccl_passed(channel->me, sl_nccl_await_count(channel, end, target));
}

/* ---- calls ---- */

int sl_nccl_channel_acquire(struct sl_spmd *self, struct sl_channel *of, void **slot) {
    (void)self;
    struct sl_nccl_channel *channel = of->state;
    const char *what = verb[SL_NCCL_SENDER][0];
    const int at = channel->slot[SL_NCCL_SENDER];
    const uint32_t posted = channel->count[SL_NCCL_SENDER], slots = (uint32_t)channel->slots;
    bool owes;
    SL_TRY(enter(channel, what));
    *slot = memory_of(channel, at);
    if (channel->holds[SL_NCCL_SENDER]) return SL_OK;
    SL_TRY(await_other(channel, SL_NCCL_SENDER, at, posted + 1 - slots, &owes));
    if (posted >= slots && !is_own(channel) && !owes) sl_nccl_watch(&channel->wire, at);
    SL_TRY(enqueue(channel, reuse, at, what));
    channel->holds[SL_NCCL_SENDER] = true;
    return SL_OK;
}

int sl_nccl_channel_take(struct sl_spmd *self, struct sl_channel *of, const void **slot) {
    (void)self;
    struct sl_nccl_channel *channel = of->state;
    const char *what = verb[SL_NCCL_RECEIVER][0];
    const int at = channel->slot[SL_NCCL_RECEIVER];
    bool owes;
    SL_TRY(enter(channel, what));
    *slot = memory_of(channel, at);
    if (channel->holds[SL_NCCL_RECEIVER]) return SL_OK;
    SL_TRY(await_other(channel, SL_NCCL_RECEIVER, at, channel->count[SL_NCCL_RECEIVER] + 1, &owes));
    SL_TRY(meet(channel, what));
    SL_TRY(enqueue(channel, receive, at, what));
    SL_TRY(hold(channel, at, what));
    if (!is_own(channel) && !owes) sl_nccl_watch(&channel->wire, at);
    channel->holds[SL_NCCL_RECEIVER] = true;
    return SL_OK;
}

/* Sends or releases the slot. */
static int hand_over(struct sl_spmd *self, struct sl_nccl_channel *channel, int end, sl_cuda_run *run) {
    const char *what = verb[end][1];
    int *slot = &channel->slot[end];
    if (!channel->holds[end])
        return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: %s without %s (opened at %s)", channel->from, channel->to,
                       what, verb[end][0], channel->site);
    SL_TRY(enter(channel, what));
    if (end == SL_NCCL_SENDER) SL_TRY(meet(channel, what));
    SL_TRY(enqueue(channel, run, *slot, what));
    if (end == SL_NCCL_SENDER) SL_TRY(hold(channel, *slot, what));
    if (end == SL_NCCL_SENDER && !is_own(channel)) sl_nccl_queue(channel->me)->posted = true;
    channel->holds[end] = false;
    channel->count[end]++;
    *slot = *slot + 1 < channel->slots ? *slot + 1 : 0;
    sl_nccl_tell_count(channel, end);
    return SL_OK;
}

int sl_nccl_channel_post(struct sl_spmd *self, struct sl_channel *channel) {
    return hand_over(self, channel->state, SL_NCCL_SENDER, sl_nccl_send);
}

int sl_nccl_channel_release(struct sl_spmd *self, struct sl_channel *channel) {
    return hand_over(self, channel->state, SL_NCCL_RECEIVER, note_read);
}

/* If a graph ends behind posted sends, the host asks for them before it waits for the graph. */
void sl_nccl_channels_rest(struct sl_spmd *self) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    struct sl_cuda_queue *queue = sl_nccl_queue(me);
    if (!queue->posted) return;
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        const int next = channel->slot[SL_NCCL_SENDER], last = next ? next - 1 : channel->slots - 1;
        const uint32_t posted = channel->count[SL_NCCL_SENDER];
        if (channel->end == SL_NCCL_SENDER && !is_own(channel) && posted) sl_nccl_owe_message(channel, last, posted);
    }
    queue->posted = false;
    if (sl_cuda_course(queue) != SL_CUDA_AT_ONCE) sl_cuda_enqueue(queue, sl_nccl_rest, &me, sizeof me);
}
