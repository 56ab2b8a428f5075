/* channel.c - channels of the mpi engine.
 *
 * If both ends are on one host, a channel is a ring of slots in shared memory, as in engine local: a message is passed
 * without a copy. The sender makes the memory.
 *
 * Otherwise each end has its own ring, and a persistent request per slot. The receiver has a receive under way for
 * every slot that it does not hold. The sender uses synchronous sends: they end when a receive has matched them, so a
 * slot is reused when the receiver had room for its last message. Both ends use the slots in order, and MPI keeps a
 * channel's messages in order: they all have the same tag.
 *
 * Before its first message the sender sends the receiver its arguments, and the origin of the memory. A channel to
 * oneself is a ring in memory. */
#include "collectives/mpi/wire.h"

#include <limits.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Arguments of the sender's opening. */
struct opening {
    uint64_t bytes;
    int64_t slots;
    struct sl_mpi_origin memory;
    char site[112];
};

/* In front of the slots of a shared ring: the number of slots handed over by each end. */
struct ring {
    struct {
        alignas(SL_CACHE_LINE) _Atomic uint32_t handed_over;
    } end[2];
};

struct sl_mpi_channel {
    struct sl_mpi_channel *next;
    struct sl_mpi_run *run;
    int from, to, slots;
    size_t bytes, stride; /* of a slot: as requested, and rounded up to cache lines */
    const char *site;
    char name[48];        /* for verdicts' places */
    char *memory;         /* NULL: shared, and not mapped here yet */
    struct ring *ring;    /* shared: in front of the memory */
    MPI_Request *request; /* [slots] */
    int sent, received;   /* next slot of each end */
    bool holds[2];        /* by end: whether the program has the slot */
    int full;             /* for a channel to oneself: messages in the ring */
    struct opening opening;
    MPI_Request match;
};

enum { SENDER, RECEIVER };

static bool is_own(const struct sl_mpi_channel *channel) { return channel->from == channel->to; }
static bool is_shared(const struct sl_mpi_channel *channel) {
    return !is_own(channel) && sl_mpi_shares_memory_with(channel->from) && sl_mpi_shares_memory_with(channel->to);
}

/* ---- opening ---- */

static size_t shared_bytes(const struct sl_mpi_channel *channel) {
    return sizeof *channel->ring + channel->stride * (size_t)channel->slots;
}

static void map(struct sl_mpi_channel *channel, void *memory) {
    channel->ring = memory;
    channel->memory = memory ? (char *)(channel->ring + 1) : NULL;
}

static void free_channel(struct sl_mpi_channel *channel) {
    sl_mpi_stop_sharing(&channel->opening.memory);
    if (!is_shared(channel))
        free(channel->memory);
    else
        sl_mpi_unmap(channel->ring, shared_bytes(channel));
    free(channel->request);
    free(channel);
}

static struct sl_mpi_channel *new_channel(struct sl_mpi_run *run, const struct sl_channel *wanted) {
    const size_t slots = (size_t)wanted->slots;
    if (wanted->bytes > SIZE_MAX / 2 / slots) return NULL;
    struct sl_mpi_channel *channel = calloc(1, sizeof *channel);
    if (!channel) return NULL;
    *channel = (struct sl_mpi_channel){.run = run,
                                       .from = wanted->from,
                                       .to = wanted->to,
                                       .slots = wanted->slots,
                                       .bytes = wanted->bytes,
                                       .site = wanted->site,
                                       .match = MPI_REQUEST_NULL};
    channel->stride = (wanted->bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    channel->opening.memory.file = -1;
    if (!is_shared(channel))
        channel->memory = aligned_alloc(SL_CACHE_LINE, channel->stride * slots);
    else if (run->spmd.coordinate == wanted->from)
        map(channel, sl_mpi_share(shared_bytes(channel), &channel->opening.memory));
    const bool room = channel->memory || (is_shared(channel) && run->spmd.coordinate == wanted->to);
    channel->request = malloc(slots * sizeof *channel->request);
    snprintf(channel->name, sizeof channel->name, "on channel %d -> %d, opened", wanted->from, wanted->to);
    if (room && channel->request) {
        for (size_t slot = 0; slot < slots; slot++) channel->request[slot] = MPI_REQUEST_NULL;
        return channel;
    }
    free_channel(channel);
    return NULL;
}

/* Tags of the pair's next channel: one for its messages, one for the opening. */
static int next_tag(const struct sl_mpi_run *run, const struct sl_channel *wanted, bool opening) {
    int64_t number = 0;
    for (const struct sl_mpi_channel *at = run->channels; at; at = at->next)
        number += at->from == wanted->from && at->to == wanted->to;
    return sl_mpi_tag(2 * number + opening, true);
}

static int open_sender(struct sl_mpi_channel *channel, int tag, int opening_tag) {
    struct sl_mpi_run *run = channel->run;
    channel->opening.bytes = channel->bytes;
    channel->opening.slots = channel->slots;
    snprintf(channel->opening.site, sizeof channel->opening.site, "%s", channel->site);
    int code = MPI_Isend(&channel->opening, sizeof channel->opening, MPI_BYTE, channel->to, opening_tag, run->wire,
                         &channel->match);
    for (int slot = 0; slot < channel->slots && code == MPI_SUCCESS && !is_shared(channel); slot++) {
        code = MPI_Ssend_init(channel->memory + channel->stride * (size_t)slot, (int)channel->bytes, MPI_BYTE,
                              channel->to, tag, run->wire, &channel->request[slot]);
    }
    return code;
}

static int open_receiver(struct sl_mpi_channel *channel, int tag, int opening_tag) {
    struct sl_mpi_run *run = channel->run;
    int code = MPI_Irecv(&channel->opening, sizeof channel->opening, MPI_BYTE, channel->from, opening_tag, run->wire,
                         &channel->match);
    for (int slot = 0; slot < channel->slots && code == MPI_SUCCESS && !is_shared(channel); slot++) {
        code = MPI_Recv_init(channel->memory + channel->stride * (size_t)slot, (int)channel->bytes, MPI_BYTE,
                             channel->from, tag, run->wire, &channel->request[slot]);
        if (code == MPI_SUCCESS) code = MPI_Start(&channel->request[slot]);
    }
    return code;
}

int sl_mpi_channel_open(struct sl_spmd *self, struct sl_channel *wanted) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    SL_TRY(sl_mpi_enter(run, "opening", "a channel", wanted->site));
    if (wanted->bytes > INT_MAX)
        return sl_fail(self, SL_BAD_INPUT,
                       "channel %d -> %d: slots of %zu bytes, at most %d are possible (opened at %s)", wanted->from,
                       wanted->to, wanted->bytes, INT_MAX, wanted->site);
    const int tag = next_tag(run, wanted, false), opening_tag = next_tag(run, wanted, true);
    if (tag < 0 || opening_tag < 0)
        return sl_fail(self, SL_FAILED, "channel %d -> %d: this MPI has no tags for so many (opened at %s)",
                       wanted->from, wanted->to, wanted->site);
    struct sl_mpi_channel *channel = new_channel(run, wanted);
    if (!channel)
        return sl_fail(self, SL_FAILED, "no memory for channel %d -> %d of %d slots of %zu bytes (opened at %s)",
                       wanted->from, wanted->to, wanted->slots, wanted->bytes, wanted->site);
    channel->next = run->channels;
    run->channels = channel;
    wanted->state = channel;
    sl_budget_add(&self->held, SL_MEMORY_HANDOVER, channel->stride * (size_t)channel->slots);
    if (is_own(channel)) return SL_OK;
    const bool sends = self->coordinate == channel->from;
    const int code = sends ? open_sender(channel, tag, opening_tag) : open_receiver(channel, tag, opening_tag);
    if (!sl_mpi_ok(run, code, "opening a channel")) return sl_mpi_await_end(run);
    run->unmatched++;
    run->remote += !is_shared(channel);
    return SL_OK;
}

/* Handles the other end's opening. */
static void match(struct sl_mpi_channel *channel) {
    struct opening *theirs = &channel->opening;
    struct sl_mpi_run *run = channel->run;
    struct sl_error verdict = {0};
    if (!sl_channel_ends_agree(&verdict, channel->from, channel->to,
                               &(struct sl_channel_end){channel->slots, channel->bytes, channel->site},
                               &(struct sl_channel_end){(int)theirs->slots, theirs->bytes, theirs->site})) {
        sl_mpi_propose(run, SL_FAILED, -1, &verdict);
        return;
    }
    if (is_shared(channel)) map(channel, sl_mpi_share_of(shared_bytes(channel), &theirs->memory));
    theirs->memory.file = -1;                                     /* the file belongs to the sender */
    if (channel->memory || sl_mpi_is_gone(channel->from)) return; /* if the sender has ended, the wait finds out */
    sl_verdict_add(&verdict, "channel %d -> %d: the sender's memory of %zu bytes cannot be mapped (opened at %s)",
                   channel->from, channel->to, shared_bytes(channel), channel->site);
    sl_mpi_propose(run, SL_FAILED, -1, &verdict);
}

static void match_all(struct sl_mpi_run *run) {
    for (struct sl_mpi_channel *channel = run->channels; channel; channel = channel->next) {
        int ended = 0;
        if (channel->match == MPI_REQUEST_NULL) continue;
        if (!sl_mpi_ok(run, MPI_Test(&channel->match, &ended, MPI_STATUS_IGNORE), "opening a channel") || !ended)
            continue;
        run->unmatched--;
        if (run->spmd.coordinate == channel->to) match(channel);
    }
}

/* ---- holding slots ---- */

static bool is_ready(struct sl_mpi_channel *channel, int slot) {
    int ended = 0;
    if (channel->match != MPI_REQUEST_NULL) match_all(channel->run);
    if (channel->run->proposed) return false; /* data may belong to another call */
    return sl_mpi_ok(channel->run, MPI_Test(&channel->request[slot], &ended, MPI_STATUS_IGNORE), channel->name) &&
           ended;
}

/* Whether END has handed over COUNT slots. */
static bool reached(const struct sl_mpi_channel *channel, int end, uint32_t count) {
    return (int32_t)(atomic_load(&channel->ring->end[end].handed_over) - count) >= 0;
}

static uint32_t handed_over(const struct sl_mpi_channel *channel, int end) {
    return atomic_load_explicit(&channel->ring->end[end].handed_over, memory_order_relaxed);
}

static bool has_shared_room(const struct sl_mpi_channel *channel) {
    const uint32_t least = handed_over(channel, SENDER) + 1 - (uint32_t)channel->slots;
    if (reached(channel, RECEIVER, least)) return true;
    sl_mpi_want_room(true);
    return reached(channel, RECEIVER, least);
}

static bool has_shared_message(const struct sl_mpi_channel *channel) {
    if (channel->match != MPI_REQUEST_NULL) match_all(channel->run);
    return channel->memory && reached(channel, SENDER, handed_over(channel, RECEIVER) + 1);
}

static bool has_room(void *of) {
    struct sl_mpi_channel *channel = of;
    if (is_shared(channel)) return has_shared_room(channel);
    return is_own(channel) ? channel->full < channel->slots : is_ready(channel, channel->sent);
}

static bool has_message(void *of) {
    struct sl_mpi_channel *channel = of;
    if (is_shared(channel)) return has_shared_message(channel);
    return is_own(channel) ? channel->full > 0 : is_ready(channel, channel->received);
}

static int sender(void *of) { return ((struct sl_mpi_channel *)of)->from; }
static int receiver(void *of) { return ((struct sl_mpi_channel *)of)->to; }

static int hold(struct sl_spmd *self, const struct sl_channel *of, int end, void **slot) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    struct sl_mpi_channel *channel = of->state;
    const bool shared = is_shared(channel);
    struct sl_mpi_wait wait = {end == SENDER ? has_room : has_message, end == SENDER ? receiver : sender, channel,
                               shared};
    SL_TRY(sl_mpi_enter(run, end == SENDER ? "acquire" : "take", channel->name, channel->site));
    if (!channel->holds[end]) {
        if (is_own(channel) && !wait.ready(channel))
            return sl_mpi_wait_for_oneself(run); /* no other can release a slot, or send */
        SL_TRY(sl_mpi_wait(run, &wait));
        if (end == RECEIVER && !shared) sl_mpi_ring_for_letter(channel->from); /* its slot may be free */
    }
    channel->holds[end] = true;
    *slot = channel->memory + channel->stride * (size_t)(end == SENDER ? channel->sent : channel->received);
    return SL_OK;
}

/* SC: see sl_mpi_want_room. */
static void hand_shared_over(struct sl_mpi_channel *channel, int end) {
    atomic_store(&channel->ring->end[end].handed_over, handed_over(channel, end) + 1);
    if (end == SENDER)
        sl_mpi_ring(channel->to);
    else
        sl_mpi_ring_for_room(channel->from);
}

static bool start(struct sl_mpi_channel *channel, int end, int slot) {
    if (!sl_mpi_ok(channel->run, MPI_Start(&channel->request[slot]), channel->name)) return false;
    sl_mpi_ring_for_letter(end == SENDER ? channel->to : channel->from);
    return true;
}

static int hand_over(struct sl_spmd *self, const struct sl_channel *of, int end) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    struct sl_mpi_channel *channel = of->state;
    int *slot = end == SENDER ? &channel->sent : &channel->received;
    if (!channel->holds[end])
        return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: %s (opened at %s)", channel->from, channel->to,
                       end == SENDER ? "post without acquire" : "release without take", channel->site);
    SL_TRY(sl_mpi_enter(run, end == SENDER ? "post" : "release", channel->name, channel->site));
    if (is_shared(channel))
        hand_shared_over(channel, end);
    else if (!is_own(channel) && !start(channel, end, *slot))
        return sl_mpi_await_end(run);
    channel->holds[end] = false;
    if (is_own(channel)) channel->full += end == SENDER ? 1 : -1;
    *slot = *slot + 1 < channel->slots ? *slot + 1 : 0;
    return SL_OK;
}

int sl_mpi_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot) {
    return hold(self, channel, SENDER, slot);
}

int sl_mpi_channel_post(struct sl_spmd *self, struct sl_channel *channel) {
    const bool here = sl_mpi_host_of(channel->from) == sl_mpi_host_of(channel->to);
    const enum sl_way way = is_shared(channel->state) ? SL_WAY_MEMORY : here ? SL_WAY_HOST : SL_WAY_NETWORK;
    if (self->sent && !is_own(channel->state)) sl_traffic_add(&self->sent[SL_CHANNELS_TRAFFIC], way, 1, channel->bytes);
    return hand_over(self, channel, SENDER);
}

int sl_mpi_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    void *message = NULL;
    SL_TRY(hold(self, channel, RECEIVER, &message));
    *slot = message;
    return SL_OK;
}

int sl_mpi_channel_release(struct sl_spmd *self, struct sl_channel *channel) {
    return hand_over(self, channel, RECEIVER);
}

/* ---- as a carrier ---- */

static void advance(struct sl_mpi_run *run) {
    if (run->unmatched) match_all(run);
}

static bool is_sending(const struct sl_mpi_run *run) {
    for (const struct sl_mpi_channel *channel = run->channels; channel; channel = channel->next) {
        const bool sends = channel->from == run->spmd.coordinate;
        for (int slot = 0; slot < channel->slots && sends; slot++) {
            if (sl_mpi_is_pending(channel->request[slot])) return true;
        }
    }
    return false;
}

static void withdraw(struct sl_mpi_run *run, double end) {
    for (struct sl_mpi_channel *channel = run->channels; channel; channel = channel->next) {
        if (channel->to != run->spmd.coordinate) continue;
        sl_mpi_withdraw_receive(&channel->match, end);
        for (int slot = 0; slot < channel->slots; slot++) sl_mpi_withdraw_receive(&channel->request[slot], end);
    }
}

static void close_all(struct sl_mpi_run *run) {
    while (run->channels) {
        struct sl_mpi_channel *channel = run->channels;
        run->channels = channel->next;
        for (int slot = 0; slot < channel->slots; slot++) {
            if (channel->request[slot] != MPI_REQUEST_NULL) MPI_Request_free(&channel->request[slot]);
        }
        free_channel(channel);
    }
}

const struct sl_mpi_carrier sl_mpi_channels = {advance, withdraw, is_sending, close_all};
