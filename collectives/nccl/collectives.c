/* collectives.c - groups of the nccl engine, and calls from their start to their end. move.c enqueues their work.
 *
 * A group's communicator is split off the one of all coordinates. Connecting needs all members, too; NCCL does it when
 * a communicator is made (engine.c sets this option) or, pair by pair, at the first calls: the group's opening makes
 * these calls, so later ones do not wait.
 *
 * Call number n of a group is in the group's slot n % SL_MAX_IN_FLIGHT. */
#include "collectives/nccl/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/operations.h"
#include "spmd/device/device.h"

enum { CONNECTED = 64 }; /* most members of a group in which each pair is connected from the beginning */

/* ---- opening ---- */

static const char opening[] = "the opening of a group";

static struct sl_nccl_group *new_group(struct sl_nccl_coordinate *me, const struct sl_group *group) {
    const size_t size = (size_t)group->size, each = sizeof(void *) + sizeof(uint32_t) + sizeof(bool);
    struct sl_nccl_group *made = calloc(1, sizeof *made + size * each);
    if (!made) return NULL;
    made->blocks = (const void **)(made + 1);
    made->compared = (uint32_t *)(made->blocks + size);
    made->needs = (bool *)(made->compared + size);
    made->group = *group;
    snprintf(made->wire.name, sizeof made->wire.name, "over \"%s\"", group->name);
    made->device = me->device, made->pinned = me->pinned;
    me->device = me->pinned = NULL;
    made->next = me->groups;
    me->groups = made;
    return made;
}

static int open_group(struct sl_nccl_coordinate *me, const struct sl_group *group, struct sl_nccl_group **opened) {
    struct sl_nccl_group *made = new_group(me, group);
    if (!made) return sl_fail(me->self, SL_FAILED, "no memory for the group \"%s\"", group->name);
    *opened = made;
    SL_TRY(sl_nccl_wire_open(me, &made->wire, SL_MAX_IN_FLIGHT));
    SL_TRY(sl_nccl_group_line(made));
    if (!me->run->below->apart || sl_nccl_comparisons_open(made)) return SL_OK;
    return sl_fail(me->self, SL_FAILED, "no memory for the group \"%s\"", group->name);
}

/* Waits until the hosts of all members have come. */
static int gather(struct sl_nccl_group *group, const char *site) {
    struct sl_nccl_coordinate *me = group->wire.me;
    struct sl_collective call = sl_describe_barrier(&group->group);
    call.site = site;
    const uint32_t ticket = group->started++;
    SL_TRY(sl_nccl_passed(me, sl_nccl_enter(me, "barrier", group->wire.name, site)));
    SL_TRY(sl_nccl_passed(me, sl_nccl_begin(group, &call, ticket)));
    return sl_nccl_passed(me, sl_nccl_meet(group, &call, ticket));
}

/* Opens the communicator from which the others are split. */
static int open_world(struct sl_nccl_coordinate *me) {
    if (me->world) return SL_OK;
    struct sl_group all = {.size = me->run->mesh->size, .rank = me->self->coordinate, .name = "*"};
    sl_mesh_members(me->run->mesh, me->self->coordinate, "*", &all.members);
    me->scratch = sl_nccl_take(me, (1 + 2 * (size_t)all.size) * sizeof *me->scratch, false);
    if (!me->scratch) return sl_fail(me->self, SL_FAILED, "no memory for the group \"*\"");
    SL_TRY(open_group(me, &all, &me->world));
    SL_TRY(gather(me->world, opening));
    ncclUniqueId id;
    struct sl_nccl_wire *wire = &me->world->wire;
    if (sl_nccl_unique_id(me, &id) || !sl_nccl_wire_join(wire, all.size, id, all.rank))
        return sl_nccl_fail(wire, "opening", opening);
    return sl_nccl_await_ready(wire, "opening", opening);
}

/* The color is the members' smallest coordinate: lists opened by one call are disjoint. MADE is NULL at other
 * coordinates. */
static bool split(struct sl_nccl_coordinate *me, const struct sl_group *group, struct sl_nccl_group *made) {
    struct sl_nccl_wire *wire = &me->world->wire;
    int color = made ? sl_group_member(group, 0) : NCCL_SPLIT_NOCOLOR;
    for (int i = 0; i < group->size && made; i++) {
        if (sl_group_member(group, i) < color) color = sl_group_member(group, i);
    }
    if (!sl_nccl_lock(wire)) return false;
    ncclComm_t *place = made ? &me->split : &me->none;
    const bool done = SL_NCCL(wire, ncclCommSplit(wire->comm, color, made ? group->rank : 0, place, NULL));
    sl_nccl_unlock(wire);
    return done;
}

/* Makes a first sum, so later ones do not wait for connections. */
static bool first_sum(struct sl_nccl_wire *wire) {
    float *x = wire->me->scratch;
    if (!sl_nccl_lock(wire)) return false;
    const bool done = SL_NCCL(wire, ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, wire->comm, wire->stream));
    sl_nccl_unlock(wire);
    return done;
}

/* Makes a first message from each member to each, which connects them: unless there are many, whose connections would
 * take much memory. Those are connected by the first call that needs them, and it waits for that. */
static bool first_words(struct sl_nccl_group *group) {
    struct sl_nccl_wire *wire = &group->wire;
    float *x = wire->me->scratch + 1, *y = x + group->group.size;
    if (group->group.size > CONNECTED) return true;
    if (!sl_nccl_lock(wire)) return false;
    bool done = SL_NCCL(wire, ncclGroupStart());
    for (int peer = 0; peer < group->group.size && done; peer++) {
        done = SL_NCCL(wire, ncclSend(x + peer, 1, ncclFloat32, peer, wire->comm, wire->stream)) &&
               SL_NCCL(wire, ncclRecv(y + peer, 1, ncclFloat32, peer, wire->comm, wire->stream));
    }
    done = SL_NCCL(wire, ncclGroupEnd()) && done;
    sl_nccl_unlock(wire);
    return done;
}

static int connect(struct sl_nccl_group *group) {
    struct sl_nccl_wire *wire = &group->wire;
    SL_TRY(sl_nccl_await_ready(wire, "opening", opening));
    if (!first_sum(wire)) return sl_nccl_fail(wire, "opening", opening);
    SL_TRY(sl_nccl_await_ready(wire, "opening", opening));
    if (!first_words(group)) return sl_nccl_fail(wire, "opening", opening);
    if (!sl_nccl_lock(wire) || !sl_nccl_get_ready(wire, "opening", opening))
        return sl_nccl_fail(wire, "opening", opening);
    const bool marked = sl_nccl_mark(wire, 0, "opening", opening);
    sl_nccl_unlock(wire);
    if (!marked) return sl_nccl_fail(wire, "opening", opening);
    sl_nccl_watch(wire, 0);
    return sl_nccl_await_flight(wire, 0);
}

int sl_nccl_group_open(struct sl_spmd *self, struct sl_group *group) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    struct sl_nccl_group *made = NULL;
    SL_TRY(sl_nccl_passed(me, sl_nccl_alive(me)));
    sl_nccl_branch(me, true);
    sl_cuda_stream(sl_nccl_queue(me)); /* nothing is held back while hosts meet */
    SL_TRY(open_world(me));
    me->opened++;
    if (group->rank >= 0) SL_TRY(open_group(me, group, &made));
    SL_TRY(gather(me->world, opening));
    if (!split(me, group, made)) return sl_nccl_fail(&me->world->wire, "opening", opening);
    SL_TRY(sl_nccl_await_ready(&me->world->wire, "opening", opening));
    if (!made) return SL_OK;
    SL_TRY(sl_nccl_wire_adopt(&made->wire, &me->split, "opening", opening));
    group->communicator = made;
    return connect(made);
}

/* ---- closing ---- */

static void free_group_events(struct sl_nccl_group *group) {
    for (int i = 0; i < SL_MAX_IN_FLIGHT; i++) {
        if (group->behind[i]) cudaEventDestroy(group->behind[i]);
    }
}

/* The site of the barrier, since members may close a group at different lines. */
static const char closing[] = "closing a group";

static struct sl_nccl_buffer *join(struct sl_nccl_buffer *one, struct sl_nccl_buffer *other) {
    struct sl_nccl_buffer **end = &one;
    while (*end) end = &(*end)->next;
    *end = other;
    return one;
}

/* After the barrier all members' calls have ended; then their communicators can be freed, in any order. */
int sl_nccl_group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    struct sl_nccl_group *closed = group->communicator, **at = &me->groups;
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++) {
        if (!closed->call[slot].under_way) continue;
        return sl_fail(self, SL_BAD_INPUT, "the group \"%s\" has calls under way (closed at %s)", group->name, site);
    }
    sl_cuda_stream(sl_nccl_queue(me)); /* nothing is held back */
    SL_TRY(sl_nccl_await_flights(&closed->wire));
    SL_TRY(gather(closed, closing));
    SL_TRY(sl_nccl_passed(me, sl_nccl_enter(me, "closing", "a group", site)));
    SL_TRY(sl_nccl_passed(me, me->run->below->line_close(self, &closed->line)));
    sl_nccl_comparisons_close(closed);
    while (*at != closed) at = &(*at)->next;
    *at = closed->next;
    if (closed->wire.captured) sl_cuda_forget(sl_nccl_queue(me));
    sl_nccl_wire_leave(&closed->wire);
    free_group_events(closed);
    sl_nccl_wire_close(&closed->wire);
    me->device = join(closed->device, me->device);
    me->pinned = join(closed->pinned, me->pinned);
    free(closed);
    return SL_OK;
}

void sl_nccl_groups_close(struct sl_nccl_coordinate *me) {
    if (me->split) ncclCommAbort(me->split); /* the run has ended before it was taken over */
    while (me->groups) {
        struct sl_nccl_group *group = me->groups;
        me->groups = group->next;
        free_group_events(group);
        sl_nccl_wire_close(&group->wire);
        sl_nccl_buffers_close(group->device);
        sl_nccl_buffers_close(group->pinned);
        free(group);
    }
    sl_nccl_buffers_close(me->device);
    sl_nccl_buffers_close(me->pinned);
}

/* ---- the two halves of a call ---- */

static struct sl_nccl_call *slot_of(const struct sl_request *request) {
    struct sl_nccl_group *group = request->call.group->communicator;
    return &group->call[request->ticket % SL_MAX_IN_FLIGHT];
}

static int flight_of(const struct sl_nccl_call *c) { return (int)(c->ticket % SL_MAX_IN_FLIGHT); }

static int enter(struct sl_nccl_coordinate *me, const struct sl_collective *call) {
    const struct sl_nccl_group *group = call->group->communicator;
    return sl_nccl_passed(me, sl_nccl_enter(me, sl_collective_name(call), group->wire.name, call->site));
}

/* Unpacking may be enqueued only when NCCL has finished enqueueing. */
static bool enqueue_parts(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const char *verb = sl_collective_name(&c->call), *site = c->call.site;
    struct sl_nccl_wire *wire = &group->wire;
    if (!sl_nccl_lock(wire)) return false;
    bool done = sl_nccl_follow(wire) && sl_nccl_pack(group, c) && sl_nccl_exchange(group, c);
    if (done && !sl_nccl_get_ready(wire, verb, site)) return false;
    done = done && sl_nccl_unpack(group, c) && sl_nccl_mark(wire, flight_of(c), verb, site);
    sl_nccl_unlock(wire);
    return done;
}

static bool enqueue_locked(struct sl_nccl_group *group, struct sl_nccl_call *c,
                           bool (*what)(struct sl_nccl_group *, struct sl_nccl_call *)) {
    if (!sl_nccl_lock(&group->wire)) return false;
    const bool done = what(group, c);
    sl_nccl_unlock(&group->wire);
    return done;
}

/* In checked mode with comparison in the stream: enqueues it once the slot's earlier call has ended. */
static int enqueue_comparison(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const char *verb = sl_collective_name(&c->call), *site = c->call.site;
    if (!group->comparisons) return SL_OK;
    if (!sl_nccl_has_landed(&group->wire, flight_of(c))) SL_TRY(sl_nccl_await_flight(&group->wire, flight_of(c)));
    if (!enqueue_locked(group, c, sl_nccl_describe)) return sl_nccl_fail(&group->wire, verb, site);
    SL_TRY(sl_nccl_await_ready(&group->wire, verb, site));
    return enqueue_locked(group, c, sl_nccl_judge) ? SL_OK : sl_nccl_fail(&group->wire, verb, site);
}

static int enqueue(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const char *verb = sl_collective_name(&c->call), *site = c->call.site;
    if (!sl_block_elements(&c->call)) return SL_OK;
    if (!sl_nccl_plan(group, c))
        return sl_fail(group->wire.me->self, SL_FAILED, "%s over \"%s\": no memory for its buffers (called at %s)",
                       verb, group->group.name, site);
    if (sl_nccl_may_hold(group, c)) {
        c->enqueued = sl_nccl_hold_start(group, c);
        return c->enqueued ? SL_OK : sl_nccl_fail(&group->wire, verb, site);
    }
    sl_cuda_stream(sl_nccl_queue(group->wire.me)); /* nothing is held back while the wire is locked */
    SL_TRY(enqueue_comparison(group, c));
    if (!enqueue_parts(group, c)) return sl_nccl_fail(&group->wire, verb, site);
    c->enqueued = true;
    return SL_OK;
}

int sl_nccl_start(struct sl_spmd *self, struct sl_request *request) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    struct sl_nccl_group *group = request->call.group->communicator;
    request->ticket = group->started;
    struct sl_nccl_call *c = slot_of(request);
    SL_TRY(enter(me, &request->call));
    if (c->under_way)
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": more than %d calls are under way (called at %s)",
                       sl_collective_name(&request->call), group->group.name, SL_MAX_IN_FLIGHT, request->call.site);
    c->call = request->call;
    c->call.group = &group->group;
    c->ticket = request->ticket;
    c->met = c->enqueued = c->taped = c->held = false;
    sl_nccl_make_way(group, c->ticket);
    if (c->call.operation == SL_BARRIER) SL_TRY(sl_device.settle(&self->error)); /* earlier work has ended */
    SL_TRY(sl_nccl_passed(me, sl_nccl_begin(group, &c->call, c->ticket)));
    group->started++;
    c->under_way = true;
    return enqueue(group, c);
}

/* All members that the call needs have begun it: it will end. */
static void note_met(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    c->met = true;
    if (c->enqueued) sl_nccl_watch(&group->wire, flight_of(c));
}

static void conclude(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    if (c->enqueued) sl_nccl_deliver(group, c);
    c->under_way = false;
}

int sl_nccl_test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    struct sl_nccl_group *group = request->call.group->communicator;
    struct sl_nccl_call *c = slot_of(request);
    *done = false;
    SL_TRY(enter(me, &request->call));
    if (sl_nccl_answers_late(group, c)) return SL_OK;
    sl_cuda_stream(sl_nccl_queue(me)); /* it cannot end before it is enqueued */
    if (!c->met && !sl_nccl_met(group, &c->call, c->ticket)) return SL_OK;
    if (!c->met) note_met(group, c);
    if (c->enqueued && !sl_nccl_has_landed(&group->wire, flight_of(c))) return SL_OK;
    SL_TRY(sl_nccl_passed(me, sl_nccl_alive(me))); /* an abort also ends flights */
    if (atomic_load(&me->run->failed)) return sl_nccl_fail(&group->wire, sl_collective_name(&c->call), c->call.site);
    conclude(group, c);
    *done = true;
    return SL_OK;
}

/* The host waits if it needs the result itself; otherwise the compute queue waits. */
static int await_result(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    if (!c->enqueued) return SL_OK;
    if (c->taped && sl_nccl_hold_end(group, c)) return SL_OK;
    if (c->taped) return sl_nccl_fail(&group->wire, sl_collective_name(&c->call), c->call.site);
    if (c->in.host || c->out.host) return sl_nccl_await_flight(&group->wire, flight_of(c));
    if (sl_nccl_lead(&group->wire, flight_of(c))) return SL_OK;
    return sl_nccl_fail(&group->wire, sl_collective_name(&c->call), c->call.site);
}

int sl_nccl_finish(struct sl_spmd *self, struct sl_request *request) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    struct sl_nccl_group *group = request->call.group->communicator;
    struct sl_nccl_call *c = slot_of(request);
    if (!c->under_way || c->ticket != request->ticket)
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": waited for twice (called at %s)",
                       sl_collective_name(&request->call), group->group.name, request->call.site);
    SL_TRY(enter(me, &request->call));
    if (!c->taped || sl_cuda_course(sl_nccl_queue(me)) == SL_CUDA_AT_ONCE) sl_cuda_stream(sl_nccl_queue(me));
    if (!c->met && !(c->taped && sl_nccl_owe(group, c))) {
        SL_TRY(sl_nccl_passed(me, sl_nccl_meet(group, &c->call, c->ticket)));
        note_met(group, c);
    }
    SL_TRY(await_result(group, c));
    conclude(group, c);
    return SL_OK;
}
