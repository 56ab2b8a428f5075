/* chain.c - long calls over several hosts, whose data travel from host to host and back: see hosts.h.
 *
 * Each round passes four points, and a member counts the rounds at each. Written: the member's values are in its
 * mailbox. Folded: a lane has added its host's values to its share of the round, in a buffer of the group's, and has
 * sent it on. Summed: the lane has received the results in the same place, and has copied them into the second half of
 * its mailbox. Read: the member has copied those that it needs from all lanes. A piece of the first half is free when
 * all lanes have folded its round, one of the second when all members have read it. */
#include <string.h>

#include "collectives/mpi/hosts.h"
#include "collectives/mpi/mailbox_internal.h"
#include "collectives/sums/partial.h"
#include "collectives/sums/reduce.h"
#include "spmd/base/memory.h"

/* ---- lanes ---- */

static const struct sl_mpi_hosts *hosts_of(const struct sl_mpi_call *c) { return c->communicator->hosts; }
static bool is_first(const struct sl_mpi_call *c) { return hosts_of(c)->mine == 0; }
static bool is_last(const struct sl_mpi_call *c) { return hosts_of(c)->mine == hosts_of(c)->count - 1; }

static int lane_of(const struct sl_mpi_call *c) { return c->call.group->rank - sl_mpi_housemates(c).begin; }
static bool is_lane(const struct sl_mpi_call *c) { return lane_of(c) < hosts_of(c)->lanes; }

/* Positions of this host's lanes. */
static struct sl_positions lanes_of(const struct sl_mpi_call *c) {
    const int begin = sl_mpi_housemates(c).begin;
    return (struct sl_positions){begin, begin + hosts_of(c)->lanes};
}

/* The member with the same lane on the next host (WAY 1), or on the one before (-1). */
static int beside(const struct sl_mpi_call *c, int way) {
    return hosts_of(c)->first[hosts_of(c)->mine + way] + lane_of(c);
}

/* The first lane of this host that has not raised a word to TARGET, -1: all have. */
static int find_unfolded(const struct sl_mpi_call *c, uint32_t target) {
    for (int peer = lanes_of(c).begin; peer < lanes_of(c).end; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->folded, target)) return peer;
    return -1;
}
static int find_unsummed(const struct sl_mpi_call *c, uint32_t target) {
    for (int peer = lanes_of(c).begin; peer < lanes_of(c).end; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->summed, target)) return peer;
    return -1;
}

/* ---- memory and messages of a round ---- */

static struct sl_span round_of(const struct sl_mpi_call *c, uint32_t round) { return sl_chain_round(&c->call, round); }
static struct sl_span share_of(const struct sl_mpi_call *c, uint32_t round, int lane) {
    return sl_chain_share(round_of(c, round), lane, hosts_of(c)->lanes);
}
static struct sl_span own_share(const struct sl_mpi_call *c, uint32_t round) { return share_of(c, round, lane_of(c)); }

/* The parts of this lane's share that HOST sends on to the next host, and back to the previous host. */
static struct sl_span passed_on(const struct sl_mpi_call *c, uint32_t round, int host) {
    const struct sl_layout layout = sl_mpi_layout_of(c->communicator);
    return sl_span_within(sl_span_passed_on(&c->call, &layout, host), own_share(c, round));
}
static struct sl_span sent_back(const struct sl_mpi_call *c, uint32_t round, int host) {
    const struct sl_layout layout = sl_mpi_layout_of(c->communicator);
    return sl_span_within(sl_span_sent_back(&c->call, &layout, host), own_share(c, round));
}

/* Room of a lane for a round under way: its share, followed by the partial sums if they have another type. */
static size_t room_for_share(const struct sl_mpi_call *c) {
    return sl_round_up(sl_span_bytes(share_of(c, 0, 0)), SL_CACHE_LINE);
}
static size_t bytes_after(const struct sl_mpi_call *c, int host) {
    return sl_chain_message(&c->call, hosts_of(c)->first[host], room_for_share(c));
}
static size_t room_for_round(const struct sl_mpi_call *c) {
    const size_t before = bytes_after(c, hosts_of(c)->mine), after = bytes_after(c, hosts_of(c)->mine + 1);
    if (!sl_chain_widens(&c->call)) return room_for_share(c);
    return room_for_share(c) + (before > after ? before : after);
}
static size_t chain_room(const struct sl_mpi_call *c) { return is_lane(c) ? SL_MPI_UNDER_WAY * room_for_round(c) : 0; }

/* A lane's memory for the value at AT of a round, and for partial sums. */
static char *value_at(const struct sl_mpi_call *c, uint32_t round, uint64_t at) {
    return c->received + round % SL_MPI_UNDER_WAY * room_for_round(c) + (at - own_share(c, round).begin);
}
static char *on_the_way(const struct sl_mpi_call *c, uint32_t round, uint64_t at) {
    if (!sl_chain_widens(&c->call)) return value_at(c, round, at);
    return c->received + round % SL_MPI_UNDER_WAY * room_for_round(c) + room_for_share(c);
}

/* Pieces of values, and of results, from AT on. */
static char *values_of(const struct sl_mpi_call *c, int position, uint32_t round, uint64_t at) {
    return sl_mpi_box_of(c, position)->piece[c->slot][round % SL_MPI_PIECES] + (at - round_of(c, round).begin);
}
static char *results_of(const struct sl_mpi_call *c, int position, uint32_t round, uint64_t at) {
    return sl_mpi_box_of(c, position)->piece[c->slot][SL_MPI_PIECES + round % SL_MPI_PIECES] +
           (at - round_of(c, round).begin);
}

/* Requests of a round: for values from the previous host, and for results from the next host. */
static int on_its_way(uint32_t round) { return (int)(round % SL_MPI_UNDER_WAY); }
static int on_its_way_back(uint32_t round) { return SL_MPI_UNDER_WAY + on_its_way(round); }

/* Elements of a message of BYTES. */
static size_t elements_of(const struct sl_mpi_call *c, uint64_t bytes) { return bytes / sl_dtype_size(c->call.dtype); }

static void pass_on(struct sl_mpi_call *c, uint32_t round) {
    const int host = hosts_of(c)->mine;
    const struct sl_span part = passed_on(c, round, host);
    const uint64_t bytes = sl_chain_message(&c->call, hosts_of(c)->first[host + 1], sl_span_bytes(part));
    if (bytes)
        sl_mpi_send(c, SL_MPI_FIRST_EXCHANGE, beside(c, 1), on_the_way(c, round, part.begin), elements_of(c, bytes),
                    &c->send[on_its_way(round)]);
}
static void await_passed(struct sl_mpi_call *c, uint32_t round) {
    const int host = hosts_of(c)->mine;
    const struct sl_span part = passed_on(c, round, host - 1);
    const uint64_t bytes = sl_chain_message(&c->call, hosts_of(c)->first[host], sl_span_bytes(part));
    if (bytes)
        sl_mpi_receive(c, SL_MPI_FIRST_EXCHANGE, beside(c, -1), on_the_way(c, round, part.begin), elements_of(c, bytes),
                       &c->receive[on_its_way(round)]);
}
static void send_back(struct sl_mpi_call *c, uint32_t round) {
    const struct sl_span part = sent_back(c, round, hosts_of(c)->mine);
    if (sl_span_bytes(part))
        sl_mpi_send(c, SL_MPI_SECOND_EXCHANGE, beside(c, -1), value_at(c, round, part.begin),
                    elements_of(c, sl_span_bytes(part)), &c->send[on_its_way_back(round)]);
}
static void await_return(struct sl_mpi_call *c, uint32_t round) {
    const struct sl_span part = sent_back(c, round, hosts_of(c)->mine + 1);
    if (sl_span_bytes(part))
        sl_mpi_receive(c, SL_MPI_SECOND_EXCHANGE, beside(c, 1), value_at(c, round, part.begin),
                       elements_of(c, sl_span_bytes(part)), &c->receive[on_its_way_back(round)]);
}

/* ---- the four points ---- */

static void begin_chain(struct sl_mpi_call *c) {
    c->written = c->folded = c->turned = c->summed = c->read = 0;
    c->rounds = (uint32_t)sl_chain_rounds(&c->call);
}

/* A member that still needs the piece for the next round to write, or -1. */
static int find_in_the_way(const struct sl_mpi_call *c) {
    if (c->written == 0) return sl_mpi_find_unread(c, c->before);
    return c->written < SL_MPI_PIECES ? -1 : find_unfolded(c, c->before + c->written + 1 - SL_MPI_PIECES);
}

/* Whether a lane's memory for the next round to write is free. */
static bool has_memory(struct sl_mpi_call *c) {
    if (!is_lane(c)) return true;
    return c->written < c->summed + SL_MPI_UNDER_WAY && sl_mpi_have_ended(c, 1, &c->send[on_its_way_back(c->written)]);
}

static bool write_round(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const uint32_t round = c->written;
    if (round == c->rounds || !has_memory(c)) return false;
    if (find_in_the_way(c) >= 0) {
        sl_mpi_want_room(true);
        if (find_in_the_way(c) >= 0) return false;
    }
    const struct sl_span part = sl_span_within(sl_span_brought(call), round_of(c, round));
    if (sl_span_bytes(part)) {
        sl_mpi_pack_span(call, part, values_of(c, call->group->rank, round, part.begin));
        sl_mpi_count_piece(c, sl_span_bytes(part));
    }
    if (is_lane(c) && !is_first(c)) await_passed(c, round);
    sl_mpi_state_call(c);
    atomic_store(&sl_mpi_own_words(c)->written, c->before + ++c->written);
    sl_mpi_ring_if_complete(c, sl_mpi_housemates(c), lanes_of(c), sl_mpi_find_unwritten(c, c->before + c->written) < 0);
    return true;
}

/* Copies this host's values to the lane's memory. */
static void join_values(struct sl_mpi_call *c, uint32_t round) {
    const struct sl_positions here = sl_mpi_housemates(c);
    struct sl_collective its = c->call;
    struct sl_group group = *its.group;
    its.group = &group;
    for (group.rank = here.begin; group.rank < here.end; group.rank++) {
        const struct sl_span part = sl_span_within(sl_span_brought(&its), own_share(c, round));
        if (sl_span_bytes(part))
            memcpy(value_at(c, round, part.begin), values_of(c, group.rank, round, part.begin), sl_span_bytes(part));
    }
}

/* Adds this host's values to the partial sums of the hosts before it. */
static void continue_sum(struct sl_mpi_call *c, uint32_t round) {
    const struct sl_collective *call = &c->call;
    const enum sl_reduction reduction = sl_operation_of(call)->reduction;
    const struct sl_positions here = sl_mpi_housemates(c);
    const struct sl_span share = own_share(c, round);
    const size_t count = elements_of(c, sl_span_bytes(share));
    const void **input = c->communicator->input;
    void *sum = value_at(c, round, share.begin);
    int inputs = 0;
    if (!is_first(c) && !sl_chain_widens(call)) input[inputs++] = sum;
    for (int peer = here.begin; peer < here.end; peer++) input[inputs++] = values_of(c, peer, round, share.begin);
    if (!count) return;
    const struct sl_partial partial = {reduction, call->dtype, call->scale, here.begin, call->group->size};
    if (sl_chain_widens(call))
        sl_continue_sum(&partial, count, inputs, input, (float *)(void *)on_the_way(c, round, share.begin), sum);
    else
        sl_reduce(reduction, call->dtype, is_last(c) ? call->scale : 1, count, inputs, input, 1, &sum);
}

static bool fold_round(struct sl_mpi_call *c) {
    const uint32_t round = c->folded;
    if (!is_lane(c) || round == c->written || sl_mpi_find_unwritten(c, c->before + round + 1) >= 0) return false;
    if (!sl_mpi_have_ended(c, 1, &c->receive[on_its_way(round)])) return false;
    if (!sl_mpi_state_alike(c, sl_mpi_housemates(c))) return false;
    if (sl_operation_of(&c->call)->reduction == SL_NO_REDUCTION)
        join_values(c, round);
    else
        continue_sum(c, round);
    if (!is_last(c)) pass_on(c, round);
    atomic_store(&sl_mpi_own_words(c)->folded, c->before + ++c->folded); /* SC: see sl_mpi_want_room */
    sl_mpi_ring_housemates_for_room(c, find_unfolded(c, c->before + c->folded) < 0);
    return true;
}

/* Once a round has been sent on, its results are received in the same place. */
static bool turn_round(struct sl_mpi_call *c) {
    if (!is_lane(c) || is_last(c) || c->turned == c->folded) return false;
    if (!sl_mpi_have_ended(c, 1, &c->send[on_its_way(c->turned)])) return false;
    await_return(c, c->turned++);
    return true;
}

/* A member that still needs the piece for the lane's next results, or -1. */
static int find_behind(const struct sl_mpi_call *c) {
    return sl_mpi_find_unread(c, c->before + c->summed + 1 - SL_MPI_PIECES);
}

static bool take_results(struct sl_mpi_call *c) {
    const uint32_t round = c->summed;
    if (!is_lane(c) || round == (is_last(c) ? c->folded : c->turned)) return false;
    if (!sl_mpi_have_ended(c, 1, &c->receive[on_its_way_back(round)])) return false;
    if (find_behind(c) >= 0) {
        sl_mpi_want_room(true);
        if (find_behind(c) >= 0) return false;
    }
    if (!is_first(c)) send_back(c, round);
    const struct sl_span share = own_share(c, round);
    if (sl_span_bytes(share)) {
        memcpy(results_of(c, c->call.group->rank, round, share.begin), value_at(c, round, share.begin),
               sl_span_bytes(share));
        sl_mpi_count_piece(c, sl_span_bytes(share));
    }
    atomic_store(&sl_mpi_own_words(c)->summed, c->before + ++c->summed);
    sl_mpi_ring_if_complete(c, lanes_of(c), sl_mpi_housemates(c), find_unsummed(c, c->before + c->summed) < 0);
    return true;
}

static bool read_round(struct sl_mpi_call *c) {
    const int begin = lanes_of(c).begin;
    if (c->read == c->written || find_unsummed(c, c->before + c->read + 1) >= 0) return false;
    if (!sl_mpi_state_alike(c, lanes_of(c))) return false;
    for (int lane = 0; lane < hosts_of(c)->lanes; lane++) {
        const struct sl_span part = sl_span_within(sl_span_needed(&c->call), share_of(c, c->read, lane));
        if (sl_span_bytes(part)) sl_mpi_unpack_span(&c->call, part, results_of(c, begin + lane, c->read, part.begin));
    }
    atomic_store(&sl_mpi_own_words(c)->read, c->before + ++c->read); /* SC: see sl_mpi_want_room */
    sl_mpi_ring_housemates_for_room(c, sl_mpi_find_unread(c, c->before + c->read) < 0);
    return true;
}

static bool chain_on(struct sl_mpi_call *c) {
    for (bool moved = true; moved;) {
        moved = write_round(c);
        moved |= fold_round(c);
        moved |= turn_round(c);
        moved |= take_results(c);
        moved |= read_round(c);
    }
    if (c->read < c->rounds || !sl_mpi_have_ended(c, 2 * c->width, c->receive)) return false;
    sl_mpi_close_rounds(c);
    return true;
}

/* ---- who is waited for ---- */

/* Follows the oldest round that is not over: newer ones may have to wait for it. */
static int find_late(const struct sl_mpi_call *c) {
    if (c->read == c->rounds) return -1; /* messages are being sent */
    if (c->read == c->written) return find_in_the_way(c);
    if (!is_lane(c) || c->summed > c->read) return find_unsummed(c, c->before + c->read + 1);
    const bool under_way = is_last(c)
                               ? c->folded == c->summed
                               : c->turned == c->summed || sl_mpi_is_pending(c->receive[on_its_way_back(c->summed)]);
    if (!under_way) return find_behind(c);
    if (c->folded > c->read) return is_last(c) ? -1 : beside(c, 1);
    const int unwritten = sl_mpi_find_unwritten(c, c->before + c->folded + 1);
    return unwritten >= 0 || is_first(c) ? unwritten : beside(c, -1);
}

static bool is_beside(const struct sl_mpi_call *c, int peer) {
    if (!is_lane(c)) return false;
    return (!is_first(c) && peer == beside(c, -1)) || (!is_last(c) && peer == beside(c, 1));
}

static int peer_at(const struct sl_mpi_call *c, int index, bool receives) {
    return beside(c, receives == (index < SL_MPI_UNDER_WAY) ? -1 : 1);
}

const struct sl_mpi_route sl_mpi_chained = {begin_chain, chain_on, find_late,  is_beside,
                                            is_beside,   is_lane,  chain_room, peer_at};
