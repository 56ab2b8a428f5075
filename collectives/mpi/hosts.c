/* hosts.c - short calls over several hosts: see hosts.h. */
#include "collectives/mpi/hosts.h"

#include <string.h>

#include "collectives/mpi/mailbox_internal.h"
#include "collectives/mpi/swap.h"
#include "collectives/sums/reduce.h"

/* ---- members of this host ---- */

struct sl_positions sl_mpi_housemates(const struct sl_mpi_call *c) {
    const struct sl_mpi_hosts *hosts = c->communicator->hosts;
    return (struct sl_positions){hosts->first[hosts->mine], hosts->first[hosts->mine + 1]};
}

int sl_mpi_find_unwritten(const struct sl_mpi_call *c, uint32_t target) {
    const struct sl_positions here = sl_mpi_housemates(c);
    for (int peer = here.begin; peer < here.end; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->written, target)) return peer;
    return -1;
}

int sl_mpi_find_unread(const struct sl_mpi_call *c, uint32_t target) {
    const struct sl_positions here = sl_mpi_housemates(c);
    for (int peer = here.begin; peer < here.end; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->read, target)) return peer;
    return -1;
}

void sl_mpi_ring_housemates_for_room(const struct sl_mpi_call *c, bool complete) {
    const struct sl_positions here = sl_mpi_housemates(c);
    for (int peer = here.begin; peer < here.end && complete; peer++)
        sl_mpi_ring_for_room(sl_group_member(c->call.group, peer));
}

/* ---- short calls ---- */

/* Number of steps, and hosts whose values a step moves. */
static int steps_of(const struct sl_mpi_hosts *hosts) {
    int steps = 0;
    while (1 << steps < hosts->count) steps++;
    return steps;
}
static int moved_in(const struct sl_mpi_hosts *hosts, int step) {
    const int left = hosts->count - (1 << step);
    return left < 1 << step ? left : 1 << step;
}

/* The host DISTANCE after this one; before it, if DISTANCE is negative. */
static int host_after(const struct sl_mpi_hosts *hosts, int distance) {
    return (hosts->mine + distance + hosts->count) % hosts->count;
}

/* Number of members with values on COUNT hosts, this one and the following. */
static size_t members_on(const struct sl_mpi_call *c, int count) {
    const struct sl_layout layout = sl_mpi_layout_of(c->communicator);
    return (size_t)sl_layout_bringing(&layout, &c->call, c->communicator->hosts->mine, count);
}

/* Number of members whose values a leader sends in a step, and receives. */
static size_t sent_in(const struct sl_mpi_call *c, int step) {
    return members_on(c, moved_in(c->communicator->hosts, step));
}
static size_t received_in(const struct sl_mpi_call *c, int step) {
    const int had = 1 << step;
    return members_on(c, had + moved_in(c->communicator->hosts, step)) - members_on(c, had);
}

static bool leads(const struct sl_mpi_call *c) { return c->call.group->rank == sl_mpi_housemates(c).begin; }

/* Values in a leader's buffer begin with those of its own host. */
static char *values_from(const struct sl_mpi_call *c, size_t members) {
    return c->received ? c->received + sl_member_bytes(&c->call) * members : NULL;
}

static void begin_gathering(struct sl_mpi_call *c) {
    c->written = c->summed = c->read = 0;
    c->rounds = 1;
    c->step = -1; /* the values of this host have not been collected */
}

static bool has_room(const struct sl_mpi_call *c) {
    if (sl_mpi_find_unread(c, c->before) < 0) return true;
    sl_mpi_want_room(true);
    return sl_mpi_find_unread(c, c->before) < 0;
}

/* Members of this host for which its leader waits: all, or in a broadcast the root, if it is here. */
static struct sl_positions awaited(const struct sl_mpi_call *c) {
    const struct sl_positions here = sl_mpi_housemates(c);
    const int root = sl_has_position(here, c->call.root) ? c->call.root : here.begin;
    return sl_call_spreads(&c->call) ? (struct sl_positions){root, root + 1} : here;
}

/* The first of these that has not written, or -1. */
static int find_awaited(const struct sl_mpi_call *c) {
    for (int peer = awaited(c).begin; peer < awaited(c).end; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->written, c->before + 1)) return peer;
    return -1;
}

static bool write_values(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    if (c->written || !has_room(c)) return false;
    if (sl_call_brings(call)) {
        sl_mpi_pack_span(call, sl_span_brought(call), sl_mpi_box_of(c, call->group->rank)->piece[c->slot][0]);
        sl_mpi_count_piece(c, sl_member_bytes(call));
    }
    sl_mpi_state_call(c);
    atomic_store(&sl_mpi_own_words(c)->written, c->before + ++c->written);
    const int leader = sl_mpi_housemates(c).begin;
    if (sl_has_position(awaited(c), call->group->rank))
        sl_mpi_ring_if_complete(c, awaited(c), (struct sl_positions){leader, leader + 1}, find_awaited(c) < 0);
    return true;
}

/* Begins a step: a message each way, if it has values. */
static void exchange_with_leaders(struct sl_mpi_call *c) {
    const struct sl_mpi_hosts *hosts = c->communicator->hosts;
    const int distance = 1 << c->step;
    const size_t elements = sl_member_bytes(&c->call) / sl_dtype_size(c->call.dtype);
    const size_t sent = sent_in(c, c->step), received = received_in(c, c->step);
    const int from = hosts->first[host_after(hosts, distance)], to = hosts->first[host_after(hosts, -distance)];
    if (received)
        sl_mpi_receive(c, SL_MPI_FIRST_EXCHANGE, from, values_from(c, members_on(c, distance)), elements * received,
                       &c->receive[from]);
    if (sent) sl_mpi_send(c, SL_MPI_FIRST_EXCHANGE, to, values_from(c, 0), elements * sent, &c->send[to]);
}

/* The values of the member at POSITION, in the leader's buffer. */
static char *values_of(const struct sl_mpi_call *c, int position) {
    const int size = c->call.group->size, ahead = size - sl_mpi_housemates(c).begin;
    return values_from(c, sl_call_spreads(&c->call) ? 0 : (size_t)((position + ahead) % size));
}

static void collect_values(const struct sl_mpi_call *c) {
    const bool spreads = sl_call_spreads(&c->call);
    for (int peer = awaited(c).begin; peer < awaited(c).end && c->received; peer++)
        if (!spreads || peer == c->call.root)
            memcpy(values_of(c, peer), sl_mpi_box_of(c, peer)->piece[c->slot][0], sl_member_bytes(&c->call));
}

static void begin_step(struct sl_mpi_call *c) {
    if (sl_call_swaps(&c->call))
        sl_mpi_swap_exchange(c);
    else
        exchange_with_leaders(c);
}

/* Collects this host's values, once they are written; then goes from step to step. */
static bool step_on(struct sl_mpi_call *c) {
    const struct sl_mpi_hosts *hosts = c->communicator->hosts;
    if (!leads(c) || !c->written || c->step == steps_of(hosts)) return false;
    if (c->step < 0) {
        if (find_awaited(c) >= 0 || !sl_mpi_state_alike(c, awaited(c))) return false;
        if (sl_call_swaps(&c->call))
            sl_mpi_swap_collect(c);
        else
            collect_values(c);
    } else if (!sl_mpi_have_ended(c, 2 * c->width, c->receive)) {
        return false;
    } else if (sl_call_swaps(&c->call)) {
        sl_mpi_swap_take(c);
    }
    if (++c->step < steps_of(hosts)) begin_step(c);
    return true;
}

static void join_values(const struct sl_mpi_call *c, char *result) {
    const size_t bytes = sl_block_bytes(&c->call);
    const int blocks = sl_operation_of(&c->call)->joins ? c->call.group->size : 1;
    for (int i = 0; i < blocks; i++) memcpy(result + bytes * (size_t)i, values_of(c, i), bytes);
}

/* Combines blocks AT bytes from the beginning of each member's values. */
static void combine_blocks(const struct sl_mpi_call *c, size_t at, void *result) {
    const struct sl_collective *call = &c->call;
    for (int i = 0; i < call->group->size; i++) c->communicator->input[i] = values_of(c, i) + at;
    sl_reduce(sl_operation_of(call)->reduction, call->dtype, call->scale, sl_block_elements(call), call->group->size,
              c->communicator->input, 1, &result);
}

/* Writes the results for the members of this host. Returns their bytes. */
static size_t write_results(const struct sl_mpi_call *c, char *result) {
    const struct sl_operation_row *operation = sl_operation_of(&c->call);
    const struct sl_positions here = sl_mpi_housemates(c);
    const size_t bytes = sl_block_bytes(&c->call);
    if (sl_call_swaps(&c->call)) return sl_mpi_swap_results(c, result);
    if (operation->cuts) {
        for (int peer = here.begin; peer < here.end && bytes; peer++)
            combine_blocks(c, bytes * (size_t)peer, result + bytes * (size_t)(peer - here.begin));
        return bytes * (size_t)(here.end - here.begin);
    }
    if (operation->reduction == SL_NO_REDUCTION && bytes)
        join_values(c, result);
    else if (bytes)
        combine_blocks(c, 0, result);
    return sl_call_bytes(&c->call);
}

/* A leader that has all values combines them for its host's members. */
static bool combine(struct sl_mpi_call *c) {
    if (!leads(c) || c->summed || c->step < steps_of(c->communicator->hosts)) return false;
    sl_mpi_count_piece(c, write_results(c, sl_mpi_box_of(c, c->call.group->rank)->piece[c->slot][0]));
    atomic_store_explicit(&sl_mpi_own_words(c)->summed, c->before + ++c->summed, memory_order_release);
    const struct sl_positions here = sl_mpi_housemates(c);
    for (int peer = here.begin + 1; peer < here.end; peer++) sl_mpi_ring_at(c, peer);
    return true;
}

/* Reads from the leader's results. */
static bool read_result(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_positions here = sl_mpi_housemates(c);
    if (c->read || !c->written || !sl_mpi_reached(&sl_mpi_words_of(c, here.begin)->summed, c->before + 1)) return false;
    if (!sl_mpi_state_alike(c, (struct sl_positions){here.begin, here.begin + 1})) return false;
    const size_t before = sl_operation_of(call)->cuts ? (size_t)(call->group->rank - here.begin) : 0;
    const struct sl_span needed = sl_span_needed(call);
    sl_mpi_unpack_span(call, needed, sl_mpi_box_of(c, here.begin)->piece[c->slot][0] + sl_span_bytes(needed) * before);
    atomic_store(&sl_mpi_own_words(c)->read, c->before + ++c->read); /* SC: see sl_mpi_want_room */
    sl_mpi_ring_housemates_for_room(c, sl_mpi_find_unread(c, c->before + c->read) < 0);
    return true;
}

static bool gather_on(struct sl_mpi_call *c) {
    for (bool moved = true; moved;) {
        moved = write_values(c);
        moved |= step_on(c);
        moved |= combine(c);
        moved |= read_result(c);
    }
    if (!c->read) return false;
    sl_mpi_close_rounds(c);
    return true;
}

static int find_late(const struct sl_mpi_call *c) {
    if (!c->written) return sl_mpi_find_unread(c, c->before);
    if (!leads(c)) return sl_mpi_housemates(c).begin;
    return c->step < 0 ? find_awaited(c) : -1;
}

/* Whether the member at PEER leads the host that is, in a step with values, WAY times its distance after this one. */
static bool is_stepped_to(const struct sl_mpi_call *c, int peer, int way) {
    const struct sl_mpi_hosts *hosts = c->communicator->hosts;
    bool found = false;
    for (int step = 0; step < steps_of(hosts) && leads(c); step++)
        found |= peer == hosts->first[host_after(hosts, way * (1 << step))] &&
                 (way > 0 ? received_in(c, step) : sent_in(c, step));
    return found;
}
static bool gathers_from(const struct sl_mpi_call *c, int peer) { return is_stepped_to(c, peer, 1); }
static bool gathers_to(const struct sl_mpi_call *c, int peer) { return is_stepped_to(c, peer, -1); }

/* A leader's room for the values of all members. */
static size_t gather_room(const struct sl_mpi_call *c) {
    if (leads(c) && sl_call_swaps(&c->call)) return sl_mpi_swap_room(c);
    return leads(c) ? sl_member_bytes(&c->call) * members_on(c, c->communicator->hosts->count) : 0;
}

static int peer_at(const struct sl_mpi_call *c, int index, bool receives) {
    (void)c, (void)receives;
    return index;
}

const struct sl_mpi_route sl_mpi_gathered = {begin_gathering, gather_on, find_late,   gathers_from,
                                             gathers_to,      leads,     gather_room, peer_at};
