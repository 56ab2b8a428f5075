/* channel.c - checks the use of a channel's ends; the engine does the rest. */
#include "collectives/channel.h"

#include "spmd/base/memory.h"

int sl_channel_open_at(struct sl_spmd *self, const char *site, struct sl_channel *channel, int from, int to,
                       size_t bytes, int slots) {
    const int coordinates = self->mesh->size;
    *channel = (struct sl_channel){.from = from, .to = to, .bytes = bytes, .slots = slots, .site = site};
    if (from < 0 || from >= coordinates || to < 0 || to >= coordinates) {
        return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: the mesh has coordinates 0 to %d (opened at %s)", from,
                       to, coordinates - 1, site);
    }
    if (self->coordinate != from && self->coordinate != to) {
        return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: opened by coordinate %d, which is neither end (at %s)",
                       from, to, self->coordinate, site);
    }
    if (bytes < 1 || slots < 1) {
        return sl_fail(self, SL_BAD_INPUT,
                       "channel %d -> %d: %zu bytes and %d slots, but both are at least 1 (opened at %s)", from, to,
                       bytes, slots, site);
    }
    return self->engine->table->channel_open(self, channel);
}

size_t sl_channel_bytes(const struct sl_spmd *self, int from, int to, size_t bytes, int slots) {
    const bool holds = self->coordinate == from || (self->coordinate == to && self->engine->table->both_ends);
    return holds ? sl_round_up(bytes, SL_CACHE_LINE) * (size_t)slots : 0;
}

/* Refuses VERB unless COORDINATE, one of the channel's ends, is the caller. */
static int require_end(struct sl_spmd *self, const struct sl_channel *channel, int coordinate, const char *verb) {
    if (self->coordinate == coordinate && channel->state) return SL_OK;
    return sl_fail(self, SL_BAD_INPUT, "channel %d -> %d: %s at coordinate %d, which is not that end or not open",
                   channel->from, channel->to, verb, self->coordinate);
}

int sl_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot) {
    SL_TRY(require_end(self, channel, channel->from, "acquire"));
    return self->engine->table->channel_acquire(self, channel, slot);
}

int sl_channel_post(struct sl_spmd *self, struct sl_channel *channel) {
    SL_TRY(require_end(self, channel, channel->from, "post"));
    return self->engine->table->channel_post(self, channel);
}

int sl_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    SL_TRY(require_end(self, channel, channel->to, "take"));
    return self->engine->table->channel_take(self, channel, slot);
}

int sl_channel_release(struct sl_spmd *self, struct sl_channel *channel) {
    SL_TRY(require_end(self, channel, channel->to, "release"));
    return self->engine->table->channel_release(self, channel);
}

void sl_channels_rest(struct sl_spmd *self) {
    if (self->engine->table->channels_rest) self->engine->table->channels_rest(self);
}
