/* graphs.c - calls over groups as parts of graphs of a step (spmd/device/cuda/tape.h).
 *
 * A call's start lets the wire's stream begin behind the compute queue, its end lets the compute queue wait for it: two
 * entries of the tape, which become branches of a graph. Hosts do not wait while a call is held back for its graph:
 * peers, whose hosts have their own graphs, may need it. So in a replayed step a call ends before its peers' hosts are
 * known to have begun it. The host asks them, call by call, when it is about to wait for the GPU or for a peer; by then
 * all held-back work has been enqueued (settle). So it finds absent peers and deadlocks before it hangs on a GPU, as
 * without graphs, and the watchdog counts from then on.
 *
 * The events by which calls are watched are recorded at that time, behind the graph: none is a part of it.
 *
 * Messages of channels (channel.c) are held back, and asked for later, in the same way.
 *
 * Two kinds of calls are never held back: calls with memory of the host, and calls compared in their streams
 * (compare_calls.c). */
#include <math.h>
#include <string.h>

#include "collectives/nccl/engine.h"

/* In checked mode, a host with held-back calls waits for a late host as long as a step takes, within these limits in
 * seconds. The wait costs little, because the calls would wait for the late host on the device, too. But if the late
 * host itself waits for a held-back call, the wait is in vain. Then the next wait is half as long, until a step has no
 * wait in vain. */
static const double SHORTEST = 2e-3, LONGEST = 0.1;

/* Argument of a start: the same bytes for the same call, independent of its number. */
struct beginning {
    struct sl_nccl_group *group;
    int place;
    struct sl_nccl_call call; /* only the fields read by move.c */
};

struct ending {
    struct sl_nccl_group *group;
    size_t place;
};

static void set_blocks(struct sl_nccl_blocks *to, const struct sl_nccl_blocks *from) {
    to->base = from->base;
    to->peer = from->peer;
    to->count = from->count;
}

static void describe(struct beginning *made, struct sl_nccl_group *group, const struct sl_nccl_call *c) {
    struct sl_collective *call = &made->call.call;
    memset(made, 0, sizeof *made);
    made->group = group;
    made->place = c->place;
    call->operation = c->call.operation;
    call->group = c->call.group;
    call->dtype = c->call.dtype;
    call->input = c->call.input;
    call->output = c->call.output;
    memcpy(call->count, c->call.count, sizeof call->count);
    call->input_view = c->call.input_view;
    call->output_view = c->call.output_view;
    call->scale = c->call.scale;
    call->source = c->call.source;
    call->destination = c->call.destination;
    call->root = c->call.root;
    made->call.combines = c->combines;
    set_blocks(&made->call.in, &c->in);
    set_blocks(&made->call.out, &c->out);
}

/* ---- entries of the tape ---- */

static bool begin_branch(struct sl_cuda_queue *queue, struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    return SL_NCCL_CUDA(wire, cudaEventRecord(wire->before, queue->stream)) &&
           SL_NCCL_CUDA(wire, cudaStreamWaitEvent(wire->stream, wire->before, 0)) && sl_nccl_pack(group, c) &&
           sl_nccl_exchange(group, c);
}

static bool begin(struct sl_cuda_queue *queue, const void *argument) {
    struct beginning b;
    memcpy(&b, argument, sizeof b);
    struct sl_nccl_group *group = b.group;
    struct sl_nccl_wire *wire = &group->wire;
    if (!sl_nccl_lock(wire)) return false;
    wire->captured = wire->captured || sl_cuda_captures(queue);
    bool done = begin_branch(queue, group, &b.call) || sl_nccl_refused(queue, wire);
    if (done && !sl_nccl_get_ready(wire, sl_collective_name(&b.call.call), "a graph of the step")) return false;
    done = done && ((sl_nccl_unpack(group, &b.call) &&
                     SL_NCCL_CUDA(wire, cudaEventRecord(group->behind[b.place], wire->stream))) ||
                    sl_nccl_refused(queue, wire));
    group->open[b.place] = done;
    sl_nccl_unlock(wire);
    return done;
}

static bool end(struct sl_cuda_queue *queue, const void *argument) {
    const struct ending *e = argument;
    if (!e->group->open[e->place]) return true;
    struct sl_nccl_wire *wire = &e->group->wire;
    e->group->open[e->place] = false;
    return SL_NCCL_CUDA(wire, cudaStreamWaitEvent(queue->stream, e->group->behind[e->place], 0)) ||
           sl_nccl_refused(queue, wire);
}

static void join_calls(struct sl_nccl_coordinate *me, bool lost) {
    for (struct sl_nccl_group *group = me->groups; group; group = group->next) {
        for (size_t place = 0; place < SL_MAX_IN_FLIGHT; place++) {
            const struct ending e = {group, place};
            if (lost) group->open[place] = false;
            end(sl_nccl_queue(me), &e);
        }
    }
}

static void join(void *owner, bool lost) {
    join_calls(owner, lost);
    sl_nccl_channels_join(owner, lost);
}

/* ---- calls whose peers' hosts have not been asked yet ---- */

static void mark_held(struct sl_nccl_group *group) {
    struct sl_cuda_queue *queue = sl_nccl_queue(group->wire.me);
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT && group->holds; slot++) {
        if (!group->call[slot].held) continue;
        group->call[slot].held = false;
        SL_NCCL_CUDA(&group->wire, cudaEventRecord(group->wire.flight[slot].done, queue->stream));
    }
    group->holds = false;
}

static int meet_end(struct sl_nccl_coordinate *me, struct sl_nccl_owed *owed) {
    struct sl_nccl_channel *channel = owed->channel;
    SL_TRY(sl_nccl_passed(me, sl_nccl_enter(me, sl_nccl_waiting(channel), channel->name, channel->site)));
    SL_TRY(sl_nccl_passed(me, sl_nccl_await_count(channel, channel->end, owed->ticket)));
    const uint32_t begun =
        channel->count[channel->end] + (channel->end == SL_NCCL_RECEIVER && channel->holds[channel->end]);
    if ((int32_t)(begun - owed->ticket) < channel->slots) sl_nccl_watch(&channel->wire, owed->slot); /* its last one */
    return SL_OK;
}

static int meet(struct sl_nccl_coordinate *me, struct sl_nccl_owed *owed) {
    if (owed->channel) return meet_end(me, owed);
    const char *verb = sl_collective_name(&owed->call), *object = owed->group->wire.name;
    SL_TRY(sl_nccl_passed(me, sl_nccl_enter(me, verb, object, owed->call.site)));
    SL_TRY(sl_nccl_passed(me, sl_nccl_meet(owed->group, &owed->call, owed->ticket)));
    sl_nccl_watch(&owed->group->wire, (int)(owed->ticket % SL_MAX_IN_FLIGHT));
    return SL_OK;
}

/* A failure here has ended the run; the engine's next call reports it. */
static void settle(void *owner) {
    struct sl_nccl_coordinate *me = owner;
    join_calls(me, false); /* not channels: their messages may be on the way to peers in need of later calls */
    for (struct sl_nccl_group *group = me->groups; group; group = group->next) mark_held(group);
    sl_nccl_channels_mark(me);
    for (int i = 0; i < me->owes; i++)
        if (meet(me, &me->owed[i])) break;
    me->owes = 0;
}

const struct sl_cuda_branches sl_nccl_branches = {
    .begin = begin, .end = end, .post = sl_nccl_send, .rest = sl_nccl_rest, .join = join, .settle = settle};

/* ---- the two halves of a call ---- */

static bool open_events(struct sl_nccl_group *group) {
    for (int i = 0; i < SL_MAX_IN_FLIGHT; i++) {
        if (!group->behind[i] &&
            !SL_NCCL_CUDA(&group->wire, cudaEventCreateWithFlags(&group->behind[i], cudaEventDisableTiming)))
            return false;
    }
    return true;
}

/* Whether the wire's stream has work outside graphs: a graph does not begin behind it. */
static bool waits_for_wire(const struct sl_nccl_group *group) {
    bool waits = false;
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++) {
        const struct sl_nccl_call *c = &group->call[slot];
        waits = waits || (c->under_way && c->enqueued && !c->taped);
    }
    return waits;
}

bool sl_nccl_may_hold(struct sl_nccl_group *group, const struct sl_nccl_call *c) {
    const struct sl_nccl_coordinate *me = group->wire.me;
    return sl_cuda_course(sl_nccl_queue(me)) != SL_CUDA_AT_ONCE && !group->comparisons && !c->in.host && !c->out.host &&
           !waits_for_wire(group);
}

bool sl_nccl_hold_start(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    struct sl_cuda_queue *queue = sl_nccl_queue(wire->me);
    const int flight = (int)(c->ticket % SL_MAX_IN_FLIGHT);
    struct beginning b;
    if (!open_events(group)) return false;
    if (group->step != queue->steps) group->places = 0;
    group->step = queue->steps;
    c->place = group->places++ % SL_MAX_IN_FLIGHT;
    c->taped = true;
    describe(&b, group, c);
    if (!sl_cuda_enqueue(queue, begin, &b, sizeof b)) return false;
    const bool later = sl_cuda_course(queue) == SL_CUDA_LATER;
    if (!sl_nccl_lock(wire)) return false;
    if (later) sl_nccl_note(wire, flight, sl_collective_name(&c->call), c->call.site);
    const bool noted = later || sl_nccl_mark(wire, flight, sl_collective_name(&c->call), c->call.site);
    sl_nccl_unlock(wire);
    if (later) c->held = group->holds = queue->owes = true;
    return noted;
}

/* The order of a step's calls must not depend on timing: a graph ends only when all its calls have ended. If one member
 * began a call early, because it saw another call end, and its peer began it late, the early call would hold up
 * messages needed first by the peer. */
bool sl_nccl_answers_late(const struct sl_nccl_group *group, const struct sl_nccl_call *c) {
    return c->taped && sl_cuda_course(sl_nccl_queue(group->wire.me)) != SL_CUDA_AT_ONCE;
}

bool sl_nccl_hold_end(struct sl_nccl_group *group, const struct sl_nccl_call *c) {
    const struct ending e = {group, (size_t)c->place};
    return sl_cuda_enqueue(sl_nccl_queue(group->wire.me), end, &e, sizeof e);
}

/* At the first call of a step: sets the patience to the duration of the last step, from its first call on. */
static void note_step(struct sl_nccl_coordinate *me) {
    const unsigned step = sl_nccl_queue(me)->steps;
    if (me->step == step) return;
    const double now = sl_now(), took = now - me->began;
    if (!me->in_vain) me->patience = fmin(took, LONGEST);
    me->step = step;
    me->began = now;
    me->in_vain = false;
}

/* Whether all members begin GROUP's call number TICKET within PATIENCE seconds. */
static bool await_all(struct sl_nccl_group *group, uint32_t ticket, double patience) {
    struct sl_nccl_coordinate *me = group->wire.me;
    const struct sl_collective all = sl_describe_barrier(&group->group);
    bool met = sl_nccl_met(group, &all, ticket);
    if (met || patience == 0) return met;
    const struct sl_wait_mark mark = sl_wait_begin(me->self);
    const double began = sl_now();
    int round = 0;
    for (double waited = 0; !met && waited < patience && !sl_nccl_alive(me); waited = sl_now() - began) {
        sl_nccl_pause(waited < SHORTEST ? 0 : round++);
        met = sl_nccl_met(group, &all, ticket);
    }
    sl_wait_end(me->self, mark);
    return met;
}

void sl_nccl_make_way(struct sl_nccl_group *group, uint32_t ticket) {
    struct sl_nccl_coordinate *me = group->wire.me;
    struct sl_cuda_queue *queue = sl_nccl_queue(me);
    note_step(me);
    if (!me->run->engine->checked || sl_cuda_course(queue) != SL_CUDA_LATER || ticket < SL_MAX_IN_FLIGHT) return;
    const bool whole = sl_cuda_is_whole(queue); /* if its graph cannot be complete any more, waiting is useless */
    if (await_all(group, ticket - SL_MAX_IN_FLIGHT, whole ? fmax(me->patience, SHORTEST) : 0)) return;
    if (whole) {
        me->in_vain = true;
        me->patience /= 2;
    }
    sl_cuda_stream(queue); /* settling waits, for any time */
}
