/* collectives.c - collectives of the local engine.
 *
 * To start a call, each member publishes it: it copies its description of the call into the communicator and raises its
 * word `arrived`. In sl_wait a member waits until the members whose data it moves have arrived; it moves its own share
 * of the data directly between the members' buffers; it raises its word `finished` for the call; and it waits for the
 * members that move data out of or into its own buffers. A share of a sum is a range of elements, read from all inputs
 * and written to all outputs: no element is read or written by two members, so inputs may be outputs.
 *
 * The description of call number n lies in slot n % SL_MAX_IN_FLIGHT. A member reuses a slot once it has finished the
 * earlier call; then no other member needs its description. Checked mode is stricter: a slot is reused only when all
 * members have finished, so any member may compare descriptions until it finishes.
 *
 * In any mode a member moves data only if the members whose buffers it reads or writes have a call of the same kind.
 * Unchecked mode compares hashes of the kinds; a member's hash lies in the cache line of its `arrived`.
 *
 * Members of a large group do not check one another: they meet at gates (gates.c), where the last member to arrive
 * compares the calls of all. It also computes sums of a few bytes, from all inputs into the communicator, and each
 * member copies the sum from there.
 *
 * On devices moves are enqueued, and no host waits: the mover's queue first follows the queues of the members whose
 * data it moves, and their queues follow the mover's before they go on. */
#include "collectives/local/communicator_internal.h"
#include "collectives/operations.h"
#include "collectives/verdict.h"
#include "spmd/device/device.h"

#include <string.h>

/* ---- members concerned by a call ---- */

static struct sl_positions all(const struct sl_collective *call) { return (struct sl_positions){0, call->group->size}; }

static uint32_t pass_of(const struct sl_request *request) {
    const struct sl_group *group = request->call.group;
    const struct sl_local_communicator *communicator = group->communicator;
    return communicator->member[group->rank].pass[request->ticket % SL_MAX_IN_FLIGHT];
}

/* Whether the last member to arrive has computed the sum; valid once the gate is open. */
static bool is_summed(const struct sl_request *request) {
    const struct sl_local_communicator *communicator = request->call.group->communicator;
    return sl_local_has_gates(&request->call) && communicator->summed[pass_of(request) % SL_MAX_IN_FLIGHT];
}

/* The members that move data out of or into the caller's buffers: none in a barrier, and none if one member has
 * computed the sum. */
static struct sl_positions movers(const struct sl_request *request) {
    const struct sl_positions none = {0, 0};
    return request->call.operation == SL_BARRIER || is_summed(request) ? none : sl_call_destinations(&request->call);
}

/* Whether the call uses only device memory: then queues wait, not hosts. */
static bool is_queued(const struct sl_collective *call) {
    return !sl_block_elements(call) || ((!sl_call_reads(call) || sl_device.reaches(call->input)) &&
                                        (!sl_call_writes(call) || sl_device.reaches(call->output)));
}

/* ---- differing calls ---- */

static uint32_t kind_of(const struct sl_collective *call) {
    return (uint32_t)(sl_call_word(call) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* Whether MEMBER may already have reused the slot of call number TICKET. Check this after reading the slot. */
static bool may_have_left(const struct member *member, uint32_t ticket) {
    return sl_local_reached(atomic_load(&member->arrived.value), ticket + SL_MAX_IN_FLIGHT);
}

/* Compares the kind of this call with the kind of the members in RANGE, which have arrived. STAY: these members' calls
 * wait for this member, so their slots are not reused yet. */
static int compare_kinds(struct sl_local_coordinate *me, const struct sl_request *request, struct sl_positions range,
                         bool stay) {
    const struct sl_collective *mine = &request->call;
    const struct member *member = ((struct sl_local_communicator *)mine->group->communicator)->member;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT;
    const uint32_t kind = atomic_load_explicit(&member[mine->group->rank].kind[slot], memory_order_relaxed);
    for (int i = range.begin; i < range.end; i++) {
        if (atomic_load_explicit(&member[i].kind[slot], memory_order_acquire) == kind) continue;
        if (stay || !may_have_left(&member[i], request->ticket))
            return sl_local_mismatch(me, mine, &member[i].call[slot], sl_group_member(mine->group, i));
    }
    return SL_OK;
}

/* Compares the call with the calls of this member's sources, before it reads; in a ppermute, also checks the source's
 * destination. */
static int compare_sources(struct sl_local_coordinate *me, const struct sl_request *request) {
    const struct sl_collective *mine = &request->call;
    const struct member *member = ((struct sl_local_communicator *)mine->group->communicator)->member;
    SL_TRY(compare_kinds(me, request, sl_call_sources(mine), mine->operation != SL_BARRIER));
    if (mine->source < 0) return SL_OK;
    const struct sl_collective *theirs = &member[mine->source].call[request->ticket % SL_MAX_IN_FLIGHT];
    if (theirs->destination == mine->group->rank) return SL_OK;
    return sl_local_mismatch(me, mine, theirs, sl_group_member(mine->group, mine->source));
}

/* Compares the call with the calls of the members that have moved this member's data, unless they have been compared
 * before. */
static int compare_movers(struct sl_local_coordinate *me, const struct sl_request *request) {
    if (sl_operation_of(&request->call)->from == SL_WITH_ALL) return SL_OK;
    return compare_kinds(me, request, movers(request), false);
}

/* ---- checked mode ---- */

/* Compares call number TICKET with the calls of the arrived members in RANGE. */
static int compare(struct sl_local_coordinate *me, const struct sl_collective *mine, const struct member *member,
                   uint32_t ticket, struct sl_positions range) {
    for (int i = range.begin; i < range.end; i++) {
        if (!sl_local_reached(atomic_load(&member[i].arrived.value), ticket + 1)) continue;
        const struct sl_collective *theirs = &member[i].call[ticket % SL_MAX_IN_FLIGHT];
        if (!sl_calls_agree(mine, theirs, i))
            return sl_local_mismatch(me, mine, theirs, sl_group_member(mine->group, i));
    }
    return SL_OK;
}

/* ---- gates ---- */

/* Whether the sum is short and uses no device memory. */
static bool is_for_one(const struct sl_collective *call, const struct member *member, uint32_t slot) {
    const size_t bytes = sl_block_bytes(call);
    bool host = sl_operation_of(call)->reduction != SL_NO_REDUCTION && !sl_operation_of(call)->cuts && bytes &&
                bytes <= SL_LOCAL_SHORT;
    for (int i = 0; i < call->group->size && host; i++)
        host = !sl_device.reaches(member[i].call[slot].input) && !sl_device.reaches(member[i].call[slot].output);
    return host;
}

/* For the last member to arrive: compares all calls and, if one member is to compute the sum, computes it. */
static int meet(struct sl_local_coordinate *me, struct sl_request *request) {
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    const struct member *member = communicator->member;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT, pass = pass_of(request) % SL_MAX_IN_FLIGHT;
    SL_TRY(me->spmd.engine->checked ? compare(me, call, member, request->ticket, all(call))
                                    : compare_kinds(me, request, all(call), true));
    communicator->summed[pass] = is_for_one(call, member, slot);
    if (!communicator->summed[pass]) return SL_OK;
    SL_TRY(sl_local_begin_moving(me));
    sl_local_sum(call, member, slot, communicator->sum[pass]);
    sl_local_count(sl_local_counts(me, call), (size_t)call->group->size - 1, sl_block_bytes(call));
    sl_local_end_moving(me);
    return SL_OK;
}

static int come_to_arrived(struct sl_local_coordinate *me, struct sl_request *request) {
    struct sl_local_communicator *communicator = request->call.group->communicator;
    struct member *mine = &communicator->member[request->call.group->rank];
    const uint32_t pass = mine->passes++;
    mine->pass[request->ticket % SL_MAX_IN_FLIGHT] = pass;
    if (!sl_local_come(communicator, &communicator->arrived, request->call.group->rank, pass)) return SL_OK;
    SL_TRY(meet(me, request));
    sl_local_open(me, &communicator->arrived, pass);
    sl_local_count_bell(sl_local_counts(me, &request->call));
    return SL_OK;
}

/* Sets *MISSING to a member that has not raised its word `finished` (FINISHED) or `arrived` for the call. */
static void find_missing(const struct sl_request *request, bool finished, struct sl_local_missing *missing) {
    struct sl_local_communicator *communicator = request->call.group->communicator;
    struct gate *gate = finished ? &communicator->finished : &communicator->arrived;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT;
    const int first = atomic_load_explicit(&gate->missing, memory_order_relaxed);
    missing->peer = -1;
    for (int i = 0; i < communicator->size && missing->peer < 0; i++) {
        const int at = (first + i) % communicator->size;
        struct member *member = &communicator->member[at];
        missing->word = finished ? &member->finished[slot] : &member->arrived;
        missing->target = request->ticket + 1;
        if (sl_local_reached(atomic_load(&missing->word->value), missing->target)) continue;
        missing->peer = communicator->coordinate[at];
        if (i) atomic_store_explicit(&gate->missing, at, memory_order_relaxed);
    }
}

/* All members may have arrived at a gate that stays closed: the last one has found that calls differ. */
static int find_not_arrived(struct sl_local_coordinate *me, const void *arg, struct sl_local_missing *missing) {
    const struct sl_request *request = arg;
    find_missing(request, false, missing);
    return missing->peer < 0 ? compare_kinds(me, request, all(&request->call), false) : SL_OK;
}

static int find_not_finished(struct sl_local_coordinate *me, const void *arg, struct sl_local_missing *missing) {
    (void)me;
    find_missing(arg, true, missing);
    return SL_OK;
}

/* ---- the two halves of a call ---- */

/* Waits until the members whose data this member moves have arrived. */
static int wait_arrived(struct sl_local_coordinate *me, const struct sl_request *request) {
    struct sl_local_communicator *communicator = request->call.group->communicator;
    const struct sl_positions range = sl_call_sources(&request->call);
    const uint32_t ticket = request->ticket;
    if (sl_local_has_gates(&request->call))
        return sl_local_await_open(me, &communicator->arrived, pass_of(request),
                                   &(struct sl_local_lack){find_not_arrived, request});
    for (int i = range.begin; i < range.end; i++) {
        struct sl_local_word *arrived = &communicator->member[i].arrived;
        SL_TRY(sl_local_wait(me, arrived, ticket + 1, communicator->coordinate[i],
                             &communicator->member[i].started[ticket % SL_MAX_IN_FLIGHT]));
    }
    return SL_OK;
}

static int wait_finished(struct sl_local_coordinate *me, struct sl_local_communicator *communicator, uint32_t ticket,
                         struct sl_positions range) {
    const uint32_t slot = ticket % SL_MAX_IN_FLIGHT;
    for (int i = range.begin; i < range.end; i++) {
        struct member *member = &communicator->member[i];
        SL_TRY(
            sl_local_wait(me, &member->finished[slot], ticket + 1, communicator->coordinate[i], &member->ended[slot]));
    }
    return SL_OK;
}

/* Waits until the members that move this member's data have finished. */
static int wait_moved(struct sl_local_coordinate *me, const struct sl_request *request) {
    struct sl_local_communicator *communicator = request->call.group->communicator;
    const struct sl_positions by = movers(request);
    if (!sl_local_has_gates(&request->call)) return wait_finished(me, communicator, request->ticket, by);
    if (by.begin == by.end) return SL_OK;
    return sl_local_await_open(me, &communicator->finished, pass_of(request),
                               &(struct sl_local_lack){find_not_finished, request});
}

int sl_local_start(struct sl_spmd *self, struct sl_request *request) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    struct member *mine = &communicator->member[call->group->rank];
    const uint32_t ticket = atomic_load_explicit(&mine->arrived.value, memory_order_relaxed),
                   slot = ticket % SL_MAX_IN_FLIGHT, earlier = ticket - SL_MAX_IN_FLIGHT;
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    if (!sl_local_reached(atomic_load_explicit(&mine->finished[slot].value, memory_order_relaxed), earlier + 1)) {
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": more than %d calls are under way (called at %s)",
                       sl_collective_name(call), call->group->name, SL_MAX_IN_FLIGHT, call->site);
    }
    if (self->engine->checked) SL_TRY(wait_finished(me, communicator, earlier, all(call)));
    void *ready; /* mark in this queue: peers' queues wait for it before they read */
    SL_TRY(sl_local_mark_or_settle(me, is_queued(call), &ready));
    atomic_store_explicit(&mine->ready[slot], ready, memory_order_relaxed);
    mine->call[slot] = *call;
    atomic_store_explicit(&mine->kind[slot], kind_of(call), memory_order_release); /* see may_have_left */
    sl_local_stamp(me, &mine->started[slot]);
    request->ticket = ticket;
    mine->under_way++;
    sl_local_post(&mine->arrived, ticket + 1);
    sl_local_count(sl_local_counts(me, call), 1, 0);
    sl_local_count_bell(sl_local_counts(me, call));
    if (sl_local_has_gates(call)) return come_to_arrived(me, request);
    /* Of two members, the one that arrives later sees the other's call, so every pair of calls is compared. */
    return self->engine->checked ? compare(me, call, communicator->member, ticket, all(call)) : SL_OK;
}

/* Latest start time of the call among the members in RANGE, which have arrived. */
static double last_started(const struct member *member, uint32_t slot, struct sl_positions range) {
    double last = 0;
    for (int i = range.begin; i < range.end; i++) {
        if (member[i].started[slot].time > last) last = member[i].started[slot].time;
    }
    return last;
}

static struct sl_local_word *finished_word(const struct sl_request *request) {
    const struct sl_group *group = request->call.group;
    struct sl_local_communicator *communicator = group->communicator;
    return &communicator->member[group->rank].finished[request->ticket % SL_MAX_IN_FLIGHT];
}

/* Enqueues this member's moves behind the work that computes the data they read. */
static int enqueue_move(struct sl_local_coordinate *me, const struct sl_collective *call, struct member *member,
                        uint32_t slot) {
    const struct sl_positions from = sl_call_sources(call);
    const int rank = call->group->rank;
    bool queued = is_queued(call);
    void *mark;
    for (int i = from.begin; i < from.end; i++) {
        void *ready = atomic_load_explicit(&member[i].ready[slot], memory_order_relaxed);
        queued = queued && ready;
        if (i != rank) sl_device.follow(ready);
    }
    sl_local_move(call, member, slot, sl_local_counts(me, call));
    const int status = sl_local_mark_or_settle(me, queued, &mark);
    atomic_store_explicit(&member[rank].moved[slot], mark, memory_order_relaxed);
    atomic_store(&me->moved, mark);
    return status;
}

/* Makes this member's queue wait for the enqueued moves of the members in RANGE, which have raised `finished`. */
static void follow_movers(const struct sl_collective *call, struct member *member, uint32_t slot,
                          struct sl_positions range) {
    for (int i = range.begin; i < range.end; i++)
        if (i != call->group->rank)
            sl_device.follow(atomic_load_explicit(&member[i].moved[slot], memory_order_relaxed));
}

/* Moves this member's share, once the members whose data it moves have arrived. */
static int move_share(struct sl_local_coordinate *me, struct sl_request *request) {
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    const bool gates = sl_local_has_gates(call), summed = is_summed(request);
    const uint32_t pass = gates ? pass_of(request) : 0;
    if (!gates)
        SL_TRY(me->spmd.engine->checked
                   ? compare(me, call, communicator->member, request->ticket, sl_call_sources(call))
                   : compare_sources(me, request));
    SL_TRY(sl_local_begin_moving(me));
    int status = SL_OK;
    struct sl_traffic *sent = sl_local_counts(me, call);
    if (summed) {
        memcpy(call->output, communicator->sum[pass % SL_MAX_IN_FLIGHT], sl_block_bytes(call));
        sl_local_count(sent, 1, sl_block_bytes(call));
    } else {
        status = enqueue_move(me, call, communicator->member, request->ticket % SL_MAX_IN_FLIGHT);
    }
    sl_local_end_moving(me);
    SL_TRY(status);
    request->moved = true;
    sl_local_stamp(me, &communicator->member[call->group->rank].ended[request->ticket % SL_MAX_IN_FLIGHT]);
    sl_local_post(finished_word(request), request->ticket + 1);
    sl_local_count_bell(sent);
    if (gates && movers(request).end && sl_local_come(communicator, &communicator->finished, call->group->rank, pass)) {
        sl_local_open(me, &communicator->finished, pass);
        sl_local_count_bell(sent);
    }
    return SL_OK;
}

static bool has(const struct sl_local_word *word, uint32_t target) {
    return sl_local_reached(atomic_load_explicit(&word->value, memory_order_acquire), target);
}

static bool is_open(const struct gate *gate, const struct sl_request *request) {
    const uint32_t pass = pass_of(request);
    return has(&gate->open[pass % SL_MAX_IN_FLIGHT], pass + 1);
}

int sl_local_test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    struct member *member = communicator->member;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT, target = request->ticket + 1;
    const bool gates = sl_local_has_gates(call);
    *done = false;
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    if (!request->moved) {
        const struct sl_positions from = sl_call_sources(call);
        if (gates && !is_open(&communicator->arrived, request)) return SL_OK;
        for (int i = from.begin; i < from.end && !gates; i++)
            if (!has(&member[i].arrived, target)) return SL_OK;
        const double delay = self->engine->delay;
        if (delay > 0 && sl_now() < last_started(member, slot, from) + delay) return SL_OK;
        SL_TRY(move_share(me, request));
    }
    const struct sl_positions by = movers(request);
    if (gates && by.end && !is_open(&communicator->finished, request)) return SL_OK;
    for (int i = by.begin; i < by.end && !gates; i++)
        if (!has(&member[i].finished[slot], target)) return SL_OK;
    SL_TRY(compare_movers(me, request));
    *done = true;
    follow_movers(call, communicator->member, slot, by);
    communicator->member[call->group->rank].under_way--;
    return SL_OK;
}

int sl_local_finish(struct sl_spmd *self, struct sl_request *request) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT;
    if (!request->moved && sl_local_reached(atomic_load_explicit(&finished_word(request)->value, memory_order_relaxed),
                                            request->ticket + 1)) {
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": waited for twice (called at %s)", sl_collective_name(call),
                       call->group->name, call->site);
    }
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    if (!request->moved) {
        SL_TRY(wait_arrived(me, request));
        if (self->engine->delay > 0)
            sl_local_delay(me, last_started(communicator->member, slot, sl_call_sources(call)));
        SL_TRY(move_share(me, request));
    }
    SL_TRY(wait_moved(me, request));
    SL_TRY(compare_movers(me, request));
    follow_movers(call, communicator->member, slot, movers(request));
    request->moved = false; /* it has ended: waiting again is an error */
    communicator->member[call->group->rank].under_way--;
    return SL_OK;
}

/* ---- reading peers' memory ---- */

int sl_local_gather_from(struct sl_spmd *self, const struct sl_collective *call, const void *const *input) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const struct sl_local_communicator *communicator = call->group->communicator;
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    SL_TRY(sl_local_begin_moving(me));
    if (sl_block_elements(call)) sl_local_gather(call, (const char *const *)input);
    sl_local_end_moving(me);
    return SL_OK;
}

int sl_local_peers_begin(struct sl_spmd *self, const char *site) {
    struct sl_local_coordinate *me = sl_local_self(self);
    SL_TRY(sl_local_enter(me, "reading", "peers", site));
    return sl_local_begin_moving(me);
}

void sl_local_peers_end(struct sl_spmd *self) { sl_local_end_moving(sl_local_self(self)); }
