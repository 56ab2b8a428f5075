/* collectives.c - collectives of the local engine.
 *
 * A call is published by its members one by one: each copies its description into the communicator and raises its
 * `arrived`. In sl_wait a member waits for the arrivals of those whose data it moves, does its own share of the moving
 * straight between the members' buffers, raises its `finished` for the call, and waits for those that move data out of
 * or into its own buffers. A share of a sum is a range of elements, taken from all inputs and written to all outputs:
 * no element is read or written by two members, so inputs may be outputs.
 *
 * A call lives in slot (its number modulo SL_MAX_IN_FLIGHT). A member's slot is used again once the member has finished
 * the earlier call, which includes that nobody needs its description. Checked mode is stricter: a slot is used again
 * when all members have finished, so that all may compare descriptions at any time before they finish.
 *
 * In any mode a member moves data only out of and into buffers of members whose call is of the same kind as its own: a
 * hash tells, which lies in the cache line that tells of their arrival.
 *
 * On devices moving is enqueued, and nobody waits: the mover's queue follows those of the members whose data it moves
 * before it does so, and theirs follow the mover's before they go on. */
#include "collectives/copies.h"
#include "collectives/local/communicator_internal.h"
#include "collectives/operations.h"
#include "collectives/reduce.h"
#include "collectives/sums.h"
#include "collectives/verdict.h"
#include "spmd/device/device.h"

enum { AT_ONCE = 16 }; /* runs */

/* ---- whom a call concerns ---- */

static struct sl_positions all(const struct sl_collective *call) { return (struct sl_positions){0, call->group->size}; }

/* The members that move data out of or into the caller's buffers; a barrier has none. */
static struct sl_positions movers(const struct sl_collective *call) {
    return call->operation == SL_BARRIER ? (struct sl_positions){0, 0} : sl_call_destinations(call);
}

/* Whether the call concerns only memory of devices: then their queues wait, not their hosts. */
static bool is_queued(const struct sl_collective *call) {
    return !sl_block_elements(call) || ((!sl_call_reads(call) || sl_device.reaches(call->input)) &&
                                        (!sl_call_writes(call) || sl_device.reaches(call->output)));
}

/* ---- moving ---- */

/* Where the block for PEER begins in a caller's input, and the block from PEER in its output. */
static const char *input_block(const struct sl_collective *call, int peer) {
    return (const char *)call->input + sl_dtype_size(call->dtype) * (size_t)peer * call->input_view.peer;
}
static char *output_block(const struct sl_collective *call, int peer) {
    return (char *)call->output + sl_dtype_size(call->dtype) * (size_t)peer * call->output_view.peer;
}

/* Bytes from the beginning of a block to its run (ROW, COLUMN). */
static size_t run_offset(const struct sl_collective *call, const struct sl_view *view, size_t row, size_t column) {
    return sl_dtype_size(call->dtype) * (row * view->stride[0] + column * view->stride[1]);
}

/* From IN[i], the block that the I-th of COUNT members has for this one, to OUT[i], a few runs at a time: so that what
 * lies together in the output is written together. */
static void copy_blocks(const struct sl_collective *mine, const struct sl_view *view, int count, const char *const *in,
                        char *const *out) {
    const struct sl_view *to = &mine->output_view;
    const size_t size = sl_dtype_size(mine->dtype), bytes = size * mine->count[2], columns = mine->count[1];
    if (sl_device.reaches(out[0]) || sl_device.reaches(in[0])) {
        const struct sl_matrices matrices = sl_block_matrices(mine, view, to);
        const bool apart = count > 1 && sl_device.reaches(out[0]) && sl_device.reaches(in[0]);
        for (int i = 0, n; i < count; i += n) {
            n = !apart ? 1 : count - i < SL_COLLECTED ? count - i : SL_COLLECTED;
            if (apart)
                sl_collect_on_device(&matrices, size, n, out + i, in + i);
            else
                sl_copy_matrices(&matrices, size, out[i], in[i]);
        }
        return;
    }
    for (size_t row = 0; row < mine->count[0]; row++) {
        for (size_t column = 0; column < columns; column += AT_ONCE) {
            const size_t runs = columns - column < AT_ONCE ? columns - column : AT_ONCE;
            const size_t from_at = run_offset(mine, view, row, column), to_at = run_offset(mine, to, row, column);
            for (int i = 0; i < count; i++)
                sl_copy_rows(runs, bytes, out[i] + to_at, size * to->stride[1], in[i] + from_at,
                             size * view->stride[1]);
        }
    }
}

/* The blocks of all that the caller gets one from. Of several its own is the first, so that not all members read the
 * same one at a time. */
static void collect(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const struct sl_positions from = sl_call_sources(mine);
    const int count = from.end - from.begin, offset = count > 1 ? mine->group->rank : 0;
    const char *in[SL_MAX_COORDINATES];
    char *out[SL_MAX_COORDINATES];
    int moved = 0;
    for (int i = 0; i < count; i++) {
        const int source = from.begin + (i + offset) % count;
        in[moved] = input_block(&member[source].call[slot], mine->group->rank);
        out[moved] = output_block(mine, source);
        moved += in[moved] != out[moved]; /* else it is in place */
    }
    if (moved) copy_blocks(mine, &member[from.begin].call[slot].input_view, moved, in, out);
    if (!count && sl_operation_of(mine)->zeros) sl_device.zero(mine->output, sl_block_bytes(mine));
}

static void combine(const struct sl_collective *mine, const struct sl_matrices *matrices, const void *const *input,
                    int outputs, void *const *output) {
    (sl_device.reaches(output[0]) ? sl_reduce_on_device
                                  : sl_reduce_matrices)(sl_operation_of(mine)->reduction, mine->dtype, mine->scale,
                                                        matrices, mine->group->size, input, outputs, output);
}

/* The caller's share of the elements: from all inputs to all outputs. Borders lie at cache lines. */
static void reduce(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const int size = mine->group->size;
    const size_t element = sl_dtype_size(mine->dtype), line = SL_CACHE_LINE / element, total = mine->count[2];
    const size_t lines = (total + line - 1) / line, members = (size_t)size;
    const size_t share = (lines + members - 1) / members * line, begin = share * (size_t)mine->group->rank;
    if (begin >= total) return;
    const void *input[SL_MAX_COORDINATES];
    void *output[SL_MAX_COORDINATES];
    for (int i = 0; i < size; i++) {
        input[i] = (const char *)member[i].call[slot].input + begin * element;
        output[i] = (char *)member[i].call[slot].output + begin * element;
    }
    const struct sl_matrices array = sl_one_array(share < total - begin ? share : total - begin);
    combine(mine, &array, input, size, output);
}

/* The same of floats, whose rows are added without a call for each. */
static void add_floats(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const struct sl_view *to = &mine->output_view, *from = &member[mine->group->rank].call[slot].input_view;
    for (size_t column = 0; column < mine->count[1]; column++) {
        const float *input[SL_MAX_COORDINATES];
        for (int i = 0; i < mine->group->size; i++)
            input[i] = (const float *)input_block(&member[i].call[slot], mine->group->rank) + column * from->stride[1];
        sl_add_rows(mine->count[0], mine->count[2], mine->group->size, input, from->stride[0], false,
                    (float *)mine->output + column * to->stride[1], to->stride[0]);
    }
}

/* The caller's own block, from all inputs. */
static void reduce_scatter(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const int size = mine->group->size;
    const bool in_order = sl_operation_of(mine)->reduction == SL_SUM;
    if (in_order && mine->dtype == SL_F32 && mine->scale == 1 && !sl_device.reaches(mine->output))
        return add_floats(mine, member, slot);
    const struct sl_matrices matrices =
        sl_block_matrices(mine, &member[mine->group->rank].call[slot].input_view, &mine->output_view);
    const void *input[SL_MAX_COORDINATES];
    for (int i = 0; i < size; i++) input[i] = input_block(&member[i].call[slot], mine->group->rank);
    combine(mine, &matrices, input, 1, &mine->output);
}

static void move(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const struct sl_operation_row *operation = sl_operation_of(mine);
    if (!sl_block_elements(mine)) return; /* pointers may be NULL then */
    if (operation->reduction == SL_NO_REDUCTION) {
        collect(mine, member, slot);
    } else if (operation->cuts) {
        reduce_scatter(mine, member, slot);
    } else {
        reduce(mine, member, slot);
    }
}

/* ---- calls that differ ---- */

static uint32_t kind_of(const struct sl_collective *call) {
    return (uint32_t)(sl_call_word(call) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* Whether MEMBER may have gone on so far that the slot of the call numbered TICKET is another one's. To be asked after
 * the slot has been read. */
static bool may_have_left(const struct member *member, uint32_t ticket) {
    return sl_local_reached(atomic_load(&member->arrived.value), ticket + SL_MAX_IN_FLIGHT);
}

/* Whether the members in RANGE, which have arrived, make a call of the kind that this one makes. Those that then wait
 * for this one STAY until it has moved. */
static int compare_kinds(struct sl_local_coordinate *me, const struct sl_request *request, struct sl_positions range,
                         bool stay) {
    const struct sl_collective *mine = &request->call;
    const struct member *member = ((struct sl_local_communicator *)mine->group->communicator)->member;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT;
    const uint32_t kind = atomic_load_explicit(&member[mine->group->rank].kind[slot], memory_order_relaxed);
    for (int i = range.begin; i < range.end; i++) {
        if (atomic_load_explicit(&member[i].kind[slot], memory_order_acquire) == kind) continue;
        if (stay || !may_have_left(&member[i], request->ticket))
            return sl_local_mismatch(me, mine, &member[i].call[slot], mine->group->member[i]);
    }
    return SL_OK;
}

/* The same of those that this one's data comes from, before it reads there: also a ppermute's source sends to it. */
static int compare_sources(struct sl_local_coordinate *me, const struct sl_request *request) {
    const struct sl_collective *mine = &request->call;
    const struct member *member = ((struct sl_local_communicator *)mine->group->communicator)->member;
    SL_TRY(compare_kinds(me, request, sl_call_sources(mine), mine->operation != SL_BARRIER));
    if (mine->source < 0) return SL_OK;
    const struct sl_collective *theirs = &member[mine->source].call[request->ticket % SL_MAX_IN_FLIGHT];
    if (theirs->destination == mine->group->rank) return SL_OK;
    return sl_local_mismatch(me, mine, theirs, mine->group->member[mine->source]);
}

/* The same of those that have moved this one's data, unless they have been compared. */
static int compare_movers(struct sl_local_coordinate *me, const struct sl_request *request) {
    if (sl_operation_of(&request->call)->from == SL_WITH_ALL) return SL_OK;
    return compare_kinds(me, request, movers(&request->call), false);
}

/* ---- checked mode ---- */

/* Compares the call numbered TICKET with those of the members in RANGE that have arrived. */
static int compare(struct sl_local_coordinate *me, const struct sl_collective *mine, const struct member *member,
                   uint32_t ticket, struct sl_positions range) {
    for (int i = range.begin; i < range.end; i++) {
        if (!sl_local_reached(atomic_load(&member[i].arrived.value), ticket + 1)) continue;
        const struct sl_collective *theirs = &member[i].call[ticket % SL_MAX_IN_FLIGHT];
        if (!sl_calls_agree(mine, theirs, i)) return sl_local_mismatch(me, mine, theirs, mine->group->member[i]);
    }
    return SL_OK;
}

/* ---- the two halves of a call ---- */

static int wait_arrived(struct sl_local_coordinate *me, struct sl_local_communicator *communicator, uint32_t ticket,
                        struct sl_positions range) {
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
    void *ready; /* the others read what it has computed */
    SL_TRY(sl_local_mark_or_settle(me, is_queued(call), &ready));
    atomic_store_explicit(&mine->ready[slot], ready, memory_order_relaxed);
    mine->call[slot] = *call;
    atomic_store_explicit(&mine->kind[slot], kind_of(call), memory_order_release); /* see may_have_left */
    sl_local_stamp(me, &mine->started[slot]);
    request->ticket = ticket;
    mine->under_way++;
    sl_local_post(&mine->arrived, ticket + 1);
    /* Of two members the later one sees the earlier: every two calls are compared. */
    return self->engine->checked ? compare(me, call, communicator->member, ticket, all(call)) : SL_OK;
}

/* When the last of the members in RANGE, which have arrived, started the call. */
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

/* Moves what the members have ready, behind it in the queue. */
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
    move(call, member, slot);
    const int status = sl_local_mark_or_settle(me, queued, &mark);
    atomic_store_explicit(&member[rank].moved[slot], mark, memory_order_relaxed);
    atomic_store(&me->moved, mark);
    return status;
}

/* What comes into the queue now finds moved what the members in RANGE, which have finished, have moved. */
static void follow_movers(const struct sl_collective *call, struct member *member, uint32_t slot,
                          struct sl_positions range) {
    for (int i = range.begin; i < range.end; i++)
        if (i != call->group->rank)
            sl_device.follow(atomic_load_explicit(&member[i].moved[slot], memory_order_relaxed));
}

/* This member's share, once the members whose data it moves have arrived. */
static int move_share(struct sl_local_coordinate *me, struct sl_request *request) {
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    SL_TRY(me->spmd.engine->checked ? compare(me, call, communicator->member, request->ticket, sl_call_sources(call))
                                    : compare_sources(me, request));
    SL_TRY(sl_local_begin_moving(me));
    const int status = enqueue_move(me, call, communicator->member, request->ticket % SL_MAX_IN_FLIGHT);
    sl_local_end_moving(me);
    SL_TRY(status);
    request->moved = true;
    sl_local_stamp(me, &communicator->member[call->group->rank].ended[request->ticket % SL_MAX_IN_FLIGHT]);
    sl_local_post(finished_word(request), request->ticket + 1);
    return SL_OK;
}

static bool has(const struct sl_local_word *word, uint32_t target) {
    return sl_local_reached(atomic_load_explicit(&word->value, memory_order_acquire), target);
}

int sl_local_test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const struct sl_collective *call = &request->call;
    struct sl_local_communicator *communicator = call->group->communicator;
    struct member *member = communicator->member;
    const uint32_t slot = request->ticket % SL_MAX_IN_FLIGHT, target = request->ticket + 1;
    *done = false;
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    if (!request->moved) {
        const struct sl_positions from = sl_call_sources(call);
        for (int i = from.begin; i < from.end; i++)
            if (!has(&member[i].arrived, target)) return SL_OK;
        const double delay = self->engine->delay;
        if (delay > 0 && sl_now() < last_started(member, slot, from) + delay) return SL_OK;
        SL_TRY(move_share(me, request));
    }
    const struct sl_positions by = movers(call);
    for (int i = by.begin; i < by.end; i++)
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
    if (!request->moved && sl_local_reached(atomic_load_explicit(&finished_word(request)->value, memory_order_relaxed),
                                            request->ticket + 1)) {
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": waited for twice (called at %s)", sl_collective_name(call),
                       call->group->name, call->site);
    }
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    if (!request->moved) {
        const struct sl_positions from = sl_call_sources(call);
        SL_TRY(wait_arrived(me, communicator, request->ticket, from));
        if (self->engine->delay > 0)
            sl_local_delay(me, last_started(communicator->member, request->ticket % SL_MAX_IN_FLIGHT, from));
        SL_TRY(move_share(me, request));
    }
    SL_TRY(wait_finished(me, communicator, request->ticket, movers(call)));
    SL_TRY(compare_movers(me, request));
    follow_movers(call, communicator->member, request->ticket % SL_MAX_IN_FLIGHT, movers(call));
    request->moved = false; /* it has ended: to wait again is an error */
    communicator->member[call->group->rank].under_way--;
    return SL_OK;
}

/* ---- alone ---- */

int sl_local_gather_from(struct sl_spmd *self, const struct sl_collective *call, const void *const *input) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const struct sl_local_communicator *communicator = call->group->communicator;
    SL_TRY(sl_local_enter(me, sl_collective_name(call), communicator->name, call->site));
    SL_TRY(sl_local_begin_moving(me));
    char *out[SL_MAX_COORDINATES];
    for (int i = 0; i < call->group->size; i++) out[i] = output_block(call, i);
    if (sl_block_elements(call))
        copy_blocks(call, &call->input_view, call->group->size, (const char *const *)input, out);
    sl_local_end_moving(me);
    return SL_OK;
}

int sl_local_peers_begin(struct sl_spmd *self, const char *site) {
    struct sl_local_coordinate *me = sl_local_self(self);
    SL_TRY(sl_local_enter(me, "reading", "peers", site));
    return sl_local_begin_moving(me);
}

void sl_local_peers_end(struct sl_spmd *self) { sl_local_end_moving(sl_local_self(self)); }
