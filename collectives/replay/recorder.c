/* recorder.c - forwards each call to the engine below and saves its result. */
#include "collectives/replay/recorder.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/replay/call_output_internal.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

/* A started call whose result will be saved. */
struct pending {
    const struct sl_request *request;
    int object;
    uint32_t number;
};

struct sl_recorder {
    struct sl_engine engine; /* self->engine points here */
    struct sl_engine_table table;
    const struct sl_engine *below;
    bool pauses;
    int objects, object_room, opened;
    struct sl_replay_object *object;
    int pendings, pending_room;
    struct pending *pending;
    struct sl_messages messages;
};

static struct sl_recorder *recorder_of(const struct sl_spmd *self) { return (struct sl_recorder *)self->engine; }

static const struct sl_engine_table *below(const struct sl_spmd *self) { return recorder_of(self)->below->table; }

static int no_memory(struct sl_spmd *self) { return sl_fail(self, SL_FAILED, "no memory to keep messages"); }

/* ---- groups and channels ---- */

static struct sl_replay_object *find(struct sl_recorder *r, const void *handle) {
    for (int i = 0; i < r->objects; i++)
        if (r->object[i].handle == handle) return &r->object[i];
    return NULL;
}

/* Handles may be reused: the memory of a closed object may belong to a new one. */
static int add(struct sl_spmd *self, const void *handle) {
    struct sl_recorder *r = recorder_of(self);
    const int number = r->pauses ? -1 : r->opened++;
    struct sl_replay_object *known = handle ? find(r, handle) : NULL;
    if (!handle) return SL_OK;
    if (!known) {
        void *list = sl_grow(r->object, r->objects, &r->object_room, 16, sizeof *r->object);
        if (!list) return no_memory(self);
        r->object = list;
        known = &r->object[r->objects++];
    }
    *known = (struct sl_replay_object){.handle = handle, .number = number};
    return SL_OK;
}

static int group_open(struct sl_spmd *self, struct sl_group *group) {
    SL_TRY(below(self)->group_open(self, group));
    return add(self, group->rank < 0 ? NULL : group->communicator);
}

static int group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    struct sl_replay_object *object = find(recorder_of(self), group->communicator);
    if (object) *object = recorder_of(self)->object[--recorder_of(self)->objects];
    return below(self)->group_close(self, group, site);
}

static int channel_open(struct sl_spmd *self, struct sl_channel *channel) {
    SL_TRY(below(self)->channel_open(self, channel));
    return add(self, channel->state);
}

/* ---- calls ---- */

static int start(struct sl_spmd *self, struct sl_request *request) {
    struct sl_recorder *r = recorder_of(self);
    struct sl_replay_object *object = r->pauses ? NULL : find(r, request->call.group->communicator);
    if (object && object->number >= 0) {
        void *list = sl_grow(r->pending, r->pendings, &r->pending_room, 64, sizeof *r->pending);
        if (!list) return no_memory(self);
        r->pending = list;
        r->pending[r->pendings++] =
            (struct pending){.request = request, .object = object->number, .number = object->calls++};
    }
    return below(self)->start(self, request);
}

/* Saves the result of REQUEST, which has ended. */
static int keep(struct sl_spmd *self, const struct sl_request *request) {
    struct sl_recorder *r = recorder_of(self);
    int i = 0;
    while (i < r->pendings && r->pending[i].request != request) i++;
    if (i == r->pendings) return SL_OK;
    const struct pending pending = r->pending[i];
    r->pending[i] = r->pending[--r->pendings];
    const struct sl_message message = {.kind = SL_MESSAGE_RESULT,
                                       .operation = (uint32_t)request->call.operation,
                                       .object = (uint32_t)pending.object,
                                       .number = pending.number,
                                       .bytes = sl_result_bytes(&request->call)};
    void *to = sl_messages_add(&r->messages, &message);
    if (!to) return no_memory(self);
    sl_result_read(&request->call, to);
    return SL_OK;
}

static int test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    SL_TRY(below(self)->test(self, request, done));
    return *done ? keep(self, request) : SL_OK;
}

static int wait_for(struct sl_spmd *self, struct sl_request *request) {
    SL_TRY(below(self)->wait(self, request));
    return keep(self, request);
}

/* ---- channels ---- */

static int channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot) {
    return below(self)->channel_acquire(self, channel, slot);
}
static int channel_post(struct sl_spmd *self, struct sl_channel *channel) {
    return below(self)->channel_post(self, channel);
}
static int channel_release(struct sl_spmd *self, struct sl_channel *channel) {
    return below(self)->channel_release(self, channel);
}

static int channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    struct sl_recorder *r = recorder_of(self);
    SL_TRY(below(self)->channel_take(self, channel, slot));
    struct sl_replay_object *object = r->pauses ? NULL : find(r, channel->state);
    if (!object || object->number < 0) return SL_OK;
    const struct sl_message message = {.kind = SL_MESSAGE_SLOT,
                                       .object = (uint32_t)object->number,
                                       .number = object->calls++,
                                       .bytes = channel->bytes};
    void *to = sl_messages_add(&r->messages, &message);
    if (!to) return no_memory(self);
    memcpy(to, *slot, channel->bytes);
    return SL_OK;
}

static int progress(struct sl_spmd *self) { return below(self)->progress(self); }

/* ---- the recorder ---- */

int sl_recorder_open(struct sl_recorder **recorder, struct sl_spmd *self) {
    *recorder = NULL;
    if (!sl_device.shares_memory)
        return sl_fail(self, SL_BAD_INPUT, "messages are kept only where the host reads the device's memory");
    struct sl_recorder *r = calloc(1, sizeof *r);
    if (!r) return no_memory(self);
    r->below = self->engine;
    r->engine = *self->engine;
    r->table = *self->engine->table;
    r->table.group_open = group_open, r->table.group_close = group_close;
    r->table.start = start, r->table.test = test, r->table.wait = wait_for;
    r->table.channel_open = channel_open, r->table.channel_acquire = channel_acquire;
    r->table.channel_post = channel_post, r->table.channel_take = channel_take;
    r->table.channel_release = channel_release, r->table.progress = progress;
    r->engine.table = &r->table;
    r->engine.recorded = true;
    self->engine = &r->engine;
    *recorder = r;
    return SL_OK;
}

void sl_recorder_close(struct sl_recorder *r, struct sl_spmd *self) {
    if (!r) return;
    self->engine = r->below;
    free(r->object);
    free(r->pending);
    sl_messages_free(&r->messages);
    free(r);
}

void sl_recorder_begin(struct sl_recorder *r) {
    r->messages.size = 0;
    for (int i = 0; i < r->objects; i++) r->object[i].calls = 0;
}

void sl_recorder_pause(struct sl_recorder *r, bool pauses) { r->pauses = pauses; }

struct sl_messages *sl_recorder_messages(struct sl_recorder *r) { return &r->messages; }
