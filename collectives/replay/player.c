/* player.c - calls return their recorded results at once. */
#include "collectives/replay/player.h"

#include <stdlib.h>

#include "collectives/replay/call_output_internal.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

/* A group, or a channel with memory for the slot it sends. */
struct object {
    struct sl_replay_object as;
    void *slot;
    struct object *next;
};

struct player {
    struct sl_engine engine; /* self->engine points here */
    const struct sl_messages *messages;
    size_t at; /* behind the last message found; the search begins here, as calls often repeat the recorded order */
    int opened, coordinate;
    struct object *object; /* the latest first */
};

static struct player *player_of(const struct sl_spmd *self) { return (struct player *)self->engine; }

static int add(struct sl_spmd *self, size_t bytes, struct object **object) {
    struct player *p = player_of(self);
    *object = calloc(1, sizeof **object);
    if (*object && bytes) (*object)->slot = sl_memory_take(bytes);
    if (!*object || (bytes && !(*object)->slot)) {
        free(*object);
        return sl_fail(self, SL_FAILED, "no memory to replay");
    }
    (*object)->as.number = p->opened++;
    (*object)->next = p->object;
    p->object = *object;
    return SL_OK;
}

static bool is_of(const struct sl_message *message, enum sl_message_kind kind, const struct sl_replay_object *object) {
    return message->kind == kind && message->object == (uint32_t)object->number && message->number == object->calls;
}

/* Returns the next message of OBJECT, with its bytes behind it; NULL: there is none. */
static const struct sl_message *receive(struct player *p, enum sl_message_kind kind, struct sl_replay_object *object) {
    size_t begin = p->at, at = begin;
    const struct sl_message *message;
    if (!p->messages) return NULL;
    for (int round = 0; round < 2; round++) {
        while ((message = sl_messages_next(p->messages, &at)) && !is_of(message, kind, object))
            if (round && at >= begin) return NULL;
        if (message) {
            p->at = at;
            object->calls++;
            return message;
        }
        at = 0;
    }
    return NULL;
}

/* ---- collectives ---- */

static int group_open(struct sl_spmd *self, struct sl_group *group) {
    struct object *object;
    SL_TRY(add(self, 0, &object));
    group->communicator = object;
    return SL_OK;
}

static int group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    (void)group, (void)site; /* freed with the others */
    return self->error.status;
}

static int start(struct sl_spmd *self, struct sl_request *request) {
    const struct sl_collective *call = &request->call;
    struct object *object = call->group->communicator;
    if (self->error.status) return self->error.status;
    const struct sl_message *message = receive(player_of(self), SL_MESSAGE_RESULT, &object->as);
    if (!message)
        return sl_fail(self, SL_FAILED, "replay: no result of %s over \"%s\" was recorded here (called at %s)",
                       sl_operation_of(call)->name, call->group->name, call->site);
    if (message->operation != (uint32_t)call->operation || message->bytes != sl_result_bytes(call))
        return sl_fail(self, SL_FAILED,
                       "replay: %s over \"%s\" has a result of %zu bytes, and another call of %zu bytes was recorded "
                       "here (called at %s)",
                       sl_operation_of(call)->name, call->group->name, sl_result_bytes(call), (size_t)message->bytes,
                       call->site);
    sl_result_write(call, message + 1);
    return SL_OK;
}

static int finish(struct sl_spmd *self, struct sl_request *request) { return (void)request, self->error.status; }

static int test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    *done = true;
    return finish(self, request);
}

/* ---- channels ---- */

static int channel_open(struct sl_spmd *self, struct sl_channel *channel) {
    struct object *object;
    SL_TRY(add(self, channel->bytes, &object));
    channel->state = object;
    return SL_OK;
}

static int channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot) {
    *slot = ((struct object *)channel->state)->slot;
    return self->error.status;
}

static int channel_pass(struct sl_spmd *self, struct sl_channel *channel) { return (void)channel, self->error.status; }

static int channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    struct object *object = channel->state;
    if (self->error.status) return self->error.status;
    const struct sl_message *message = receive(player_of(self), SL_MESSAGE_SLOT, &object->as);
    if (!message || message->bytes != channel->bytes)
        return sl_fail(self, SL_FAILED, "replay: no message of channel %d -> %d was recorded here (opened at %s)",
                       channel->from, channel->to, channel->site);
    *slot = message + 1;
    return SL_OK;
}

static int progress(struct sl_spmd *self) { return self->error.status; }

/* ---- the run ---- */

void sl_player_use(struct sl_spmd *self, const struct sl_messages *messages) {
    struct player *p = player_of(self);
    p->messages = messages;
    p->at = 0;
    for (struct object *object = p->object; object; object = object->next) object->as.calls = 0;
}

static void free_objects(struct player *p) {
    while (p->object) {
        struct object *object = p->object;
        p->object = object->next;
        sl_memory_give(object->slot);
        free(object);
    }
}

static int run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    struct player *p = (struct player *)engine;
    struct sl_spmd self = {
        .mesh = mesh, .engine = engine, .coordinate = p->coordinate, .device = sl_device.count() ? 0 : -1};
    const int status = program(&self, arg);
    free_objects(p);
    if (status == SL_OK) return SL_OK;
    sl_fail(&self, status, "the program returned status %d", status); /* an earlier message stays */
    self.error.status = status;
    return sl_report(engine, &self.error);
}

int sl_player_run(const struct sl_mesh *mesh, const struct sl_player_like *like, int coordinate,
                  const struct sl_messages *messages, sl_program *program, void *arg, struct sl_error *error) {
    const struct sl_engine_table table = {.name = like->name,
                                          .apart = like->apart,
                                          .both_ends = like->both_ends,
                                          .run = run,
                                          .group_open = group_open,
                                          .group_close = group_close,
                                          .start = start,
                                          .test = test,
                                          .wait = finish,
                                          .channel_open = channel_open,
                                          .channel_acquire = channel_acquire,
                                          .channel_post = channel_pass,
                                          .channel_take = channel_take,
                                          .channel_release = channel_pass,
                                          .progress = progress};
    struct player player = {
        .engine = {.table = &table, .timeout = 1, .error = error}, .messages = messages, .coordinate = coordinate};
    return sl_run(mesh, &player.engine, program, arg);
}
