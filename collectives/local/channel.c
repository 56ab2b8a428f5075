/* channel.c - channels of the local engine: a ring of slots in memory shared by both ends. */
#include "collectives/local/engine.h"
#include "collectives/verdict.h"
#include "spmd/device/device.h"

#include <stdio.h>
#include <stdlib.h>

enum { SENDER, RECEIVER };

/* One end raises its word by one per message; its slot and `holds` are private. */
struct end {
    alignas(SL_CACHE_LINE) struct sl_local_word word; /* messages posted; messages released */
    int slot;
    bool holds;
    bool open;             /* under the run's lock */
    struct handed *handed; /* [slots] */
};

/* Time of the last hand-over of a slot, and its mark for the other end's queue. */
struct handed {
    struct sl_local_stamp stamp;
    void *mark;
};

struct sl_local_channel {
    struct sl_local_channel *next;
    int from, to, slots;
    size_t bytes, stride; /* of a slot: as requested, and rounded up to cache lines */
    char *memory;
    const char *site; /* line of the first end's opening */
    char name[48];    /* for verdicts' places */
    struct end end[2];
};

/* ---- opening ---- */

static size_t bytes_of(const struct sl_local_channel *channel) { return channel->stride * (size_t)channel->slots; }

static struct sl_local_channel *new_channel(const struct sl_channel *wanted) {
    const size_t most = SIZE_MAX / 2 / (size_t)wanted->slots;
    struct sl_local_channel *channel = wanted->bytes < most ? sl_local_take(sizeof *channel) : NULL;
    if (!channel) return NULL;
    channel->from = wanted->from, channel->to = wanted->to;
    channel->slots = wanted->slots, channel->bytes = wanted->bytes, channel->site = wanted->site;
    channel->stride = (wanted->bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    channel->memory = sl_device.take(bytes_of(channel));
    struct handed *handed = sl_local_take(2 * (size_t)channel->slots * sizeof *handed);
    channel->end[SENDER].handed = handed;
    snprintf(channel->name, sizeof channel->name, "on channel %d -> %d, opened", wanted->from, wanted->to);
    if (channel->memory && handed) {
        channel->end[RECEIVER].handed = handed + channel->slots;
        return channel;
    }
    sl_device.give(channel->memory);
    free(handed);
    free(channel);
    return NULL;
}

/* COORDINATE's end of CHANNEL; a channel to oneself is opened once, as its sender. */
static struct end *end_of(struct sl_local_channel *channel, int coordinate) {
    return &channel->end[coordinate == channel->from ? SENDER : RECEIVER];
}

/* Opens this coordinate's end of the pair's first channel on which this end is not open yet. NULL without memory. */
static struct sl_local_channel *open_end(struct sl_spmd *self, const struct sl_channel *wanted) {
    struct sl_local_channel **at = &sl_local_self(self)->run->coordinate[wanted->from].channels;
    for (; *at; at = &(*at)->next) {
        if ((*at)->to == wanted->to && !end_of(*at, self->coordinate)->open) break;
    }
    if (!*at) *at = new_channel(wanted);
    if (*at) end_of(*at, self->coordinate)->open = true;
    return *at;
}

int sl_local_channel_open(struct sl_spmd *self, struct sl_channel *channel) {
    struct sl_local_coordinate *me = sl_local_self(self);
    struct sl_local_run *run = me->run;
    SL_TRY(sl_local_enter(me, "opening", "a channel", channel->site));
    pthread_mutex_lock(&run->opening);
    struct sl_local_channel *state = open_end(self, channel);
    pthread_mutex_unlock(&run->opening);
    if (!state) {
        return sl_fail(self, SL_FAILED, "no memory for channel %d -> %d of %d slots of %zu bytes (opened at %s)",
                       channel->from, channel->to, channel->slots, channel->bytes, channel->site);
    }
    struct sl_error verdict = {0};
    if (!sl_channel_ends_agree(&verdict, channel->from, channel->to,
                               &(struct sl_channel_end){channel->slots, channel->bytes, channel->site},
                               &(struct sl_channel_end){state->slots, state->bytes, state->site})) {
        sl_local_end(run, SL_FAILED, "%s", verdict.message);
        return sl_local_alive(me);
    }
    channel->state = state;
    if (self->coordinate == state->from) sl_budget_add(&self->held, SL_MEMORY_HANDOVER, bytes_of(state));
    return SL_OK;
}

void sl_local_channels_close(struct sl_local_run *run) {
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_local_channel **first = &run->coordinate[i].channels;
        while (*first) {
            struct sl_local_channel *channel = *first;
            *first = channel->next;
            sl_device.give(channel->memory);
            free(channel->end[SENDER].handed);
            free(channel);
        }
    }
}

/* ---- sending and releasing ---- */

static uint32_t posts(const struct end *end) { return atomic_load_explicit(&end->word.value, memory_order_relaxed); }

/* Acquires a slot (sender), or takes the next message (receiver). The sender waits until it is fewer than SLOTS
 * messages ahead of the receiver's word; the receiver waits until one more message has been posted. */
static int hold(struct sl_spmd *self, struct sl_channel *channel, int which, void **slot) {
    struct sl_local_coordinate *me = sl_local_self(self);
    struct sl_local_channel *state = channel->state;
    struct end *mine = &state->end[which], *theirs = &state->end[!which];
    SL_TRY(sl_local_enter(me, which == SENDER ? "acquire" : "take", state->name, channel->site));
    const uint32_t target = posts(mine) + 1 - (which == SENDER ? (uint32_t)state->slots : 0);
    SL_TRY(sl_local_wait(me, &theirs->word, target, which == SENDER ? state->to : state->from,
                         &theirs->handed[mine->slot].stamp));
    sl_device.follow(theirs->handed[mine->slot].mark);
    mine->holds = true;
    *slot = state->memory + state->stride * (size_t)mine->slot;
    return SL_OK;
}

static int hand_over(struct sl_spmd *self, struct sl_channel *channel, int which) {
    struct sl_local_channel *state = channel->state;
    struct end *mine = &state->end[which];
    if (!mine->holds) {
        return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: %s (opened at %s)", channel->from, channel->to,
                       which == SENDER ? "post without acquire" : "release without take", channel->site);
    }
    SL_TRY(sl_local_enter(sl_local_self(self), which == SENDER ? "post" : "release", state->name, channel->site));
    struct handed *handed = &mine->handed[mine->slot];
    SL_TRY(sl_local_mark(sl_local_self(self), &handed->mark)); /* the other end reads or writes the slot next */
    mine->holds = false;
    sl_local_stamp(sl_local_self(self), &handed->stamp);
    mine->slot = mine->slot + 1 < state->slots ? mine->slot + 1 : 0;
    sl_local_post(&mine->word, posts(mine) + 1);
    if (self->sent) self->sent[SL_CHANNELS_TRAFFIC].bells++;
    if (self->sent && which == SENDER) sl_traffic_add(&self->sent[SL_CHANNELS_TRAFFIC], SL_WAY_MEMORY, 1, 0);
    return SL_OK;
}

int sl_local_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot) {
    return hold(self, channel, SENDER, slot);
}

int sl_local_channel_post(struct sl_spmd *self, struct sl_channel *channel) { return hand_over(self, channel, SENDER); }

int sl_local_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    void *message;
    SL_TRY(hold(self, channel, RECEIVER, &message));
    const struct sl_local_channel *state = channel->state;
    if (self->engine->delay > 0 && state->from != state->to)
        sl_local_delay(sl_local_self(self), state->end[SENDER].handed[state->end[RECEIVER].slot].stamp.time);
    *slot = message;
    return SL_OK;
}

int sl_local_channel_release(struct sl_spmd *self, struct sl_channel *channel) {
    return hand_over(self, channel, RECEIVER);
}
