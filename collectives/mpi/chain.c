/* chain.c - long sums over several hosts, which travel from host to host and back: see hosts.h.
 *
 * Each round passes four points, and a member counts the rounds at each. Written: the member's values are in its
 * mailbox. Folded: a lane has continued the sum of its share, in its program's output, and has sent it on. Summed: the
 * lane has received the whole sum in the same place, and has copied it into the second half of its mailbox. Read: the
 * member has copied the shares of all lanes. A piece of the first half is free when all lanes have folded its round,
 * one of the second when all members have read it. */
#include <string.h>

#include "collectives/mpi/hosts.h"
#include "collectives/mpi/mailbox_internal.h"
#include "collectives/sums/reduce.h"

/* ---- lanes ---- */

static const struct sl_mpi_hosts *hosts_of(const struct sl_mpi_call *c) { return c->communicator->hosts; }
static bool is_first(const struct sl_mpi_call *c) { return hosts_of(c)->mine == 0; }
static bool is_last(const struct sl_mpi_call *c) { return hosts_of(c)->mine == hosts_of(c)->count - 1; }

static int lane_of(const struct sl_mpi_call *c) { return c->call.group->rank - sl_mpi_housemates(c).begin; }
static bool is_lane(const struct sl_mpi_call *c) { return lane_of(c) < hosts_of(c)->lanes; }

/* The member with the same lane on the next host (WAY 1), or on the one before (-1). */
static int beside(const struct sl_mpi_call *c, int way) {
    return hosts_of(c)->first[hosts_of(c)->mine + way] + lane_of(c);
}

/* The first lane of this host that has not raised a word to TARGET, -1: all have. */
static int find_unfolded(const struct sl_mpi_call *c, uint32_t target) {
    const int begin = sl_mpi_housemates(c).begin;
    for (int peer = begin; peer < begin + hosts_of(c)->lanes; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->folded, target)) return peer;
    return -1;
}
static int find_unsummed(const struct sl_mpi_call *c, uint32_t target) {
    const int begin = sl_mpi_housemates(c).begin;
    for (int peer = begin; peer < begin + hosts_of(c)->lanes; peer++)
        if (!sl_mpi_reached(&sl_mpi_words_of(c, peer)->summed, target)) return peer;
    return -1;
}

/* ---- memory and messages of a round ---- */

/* A lane's share of a round, in bytes of the round. */
static struct sl_mpi_range share_of(const struct sl_mpi_call *c, uint32_t round, int lane) {
    return sl_mpi_portion_of(&c->call, sl_mpi_range_of(&c->call, round), lane, hosts_of(c)->lanes);
}
static size_t elements_of(const struct sl_mpi_call *c, uint32_t round) {
    return share_of(c, round, lane_of(c)).count / sl_dtype_size(c->call.dtype);
}

/* The place of a lane's share in the program's output. */
static char *output_of(const struct sl_mpi_call *c, uint32_t round, int lane) {
    const size_t before = sl_mpi_range_of(&c->call, round).begin * sl_dtype_size(c->call.dtype);
    return (char *)c->call.output + before + share_of(c, round, lane).begin;
}

/* Pieces of values, and of sums. */
static char *values_of(const struct sl_mpi_call *c, int position, uint32_t round) {
    return sl_mpi_box_of(c, position)->piece[c->slot][round % SL_MPI_PIECES];
}
static char *sums_of(const struct sl_mpi_call *c, int position, uint32_t round) {
    return sl_mpi_box_of(c, position)->piece[c->slot][SL_MPI_PIECES + round % SL_MPI_PIECES];
}

/* Requests of a round: for the sums of the hosts before, and for whole sums. */
static int on_its_way(uint32_t round) { return (int)(round % SL_MPI_UNDER_WAY); }
static int on_its_way_back(uint32_t round) { return SL_MPI_UNDER_WAY + on_its_way(round); }

static void send_share(struct sl_mpi_call *c, uint32_t round, int way) {
    const bool on = way > 0;
    sl_mpi_send(c, on ? SL_MPI_FIRST_EXCHANGE : SL_MPI_SECOND_EXCHANGE, beside(c, way), output_of(c, round, lane_of(c)),
                elements_of(c, round), &c->send[on ? on_its_way(round) : on_its_way_back(round)]);
}
static void receive_share(struct sl_mpi_call *c, uint32_t round, int way) {
    const bool on = way < 0;
    sl_mpi_receive(c, on ? SL_MPI_FIRST_EXCHANGE : SL_MPI_SECOND_EXCHANGE, beside(c, way),
                   output_of(c, round, lane_of(c)), elements_of(c, round),
                   &c->receive[on ? on_its_way(round) : on_its_way_back(round)]);
}

/* ---- the four points ---- */

static void begin_chain(struct sl_mpi_call *c) {
    c->written = c->folded = c->turned = c->summed = c->read = 0;
    c->rounds = sl_mpi_count_rounds(&c->call);
}

/* A member that still needs the piece for the next round to write, or -1. */
static int find_in_the_way(const struct sl_mpi_call *c) {
    if (c->written == 0) return sl_mpi_find_unread(c, c->before);
    return c->written < SL_MPI_PIECES ? -1 : find_unfolded(c, c->before + c->written + 1 - SL_MPI_PIECES);
}

/* A lane receives into its output what the hosts before have summed; its own values have been copied from there. */
static bool write_round(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    if (c->written == c->rounds || (is_lane(c) && c->written == c->summed + SL_MPI_UNDER_WAY)) return false;
    if (find_in_the_way(c) >= 0) {
        sl_mpi_want_room(true);
        if (find_in_the_way(c) >= 0) return false;
    }
    sl_mpi_pack(call, sl_mpi_range_of(call, c->written), values_of(c, call->group->rank, c->written), call->input);
    if (is_lane(c) && !is_first(c)) receive_share(c, c->written, -1);
    sl_mpi_count_piece(c, sl_mpi_range_of(call, c->written).count * sl_dtype_size(call->dtype));
    sl_mpi_state_call(c);
    atomic_store_explicit(&sl_mpi_own_words(c)->written, c->before + ++c->written, memory_order_release);
    const int begin = sl_mpi_housemates(c).begin;
    for (int lane = begin; lane < begin + hosts_of(c)->lanes; lane++)
        if (lane != call->group->rank) sl_mpi_ring_at(c, lane);
    return true;
}

static void continue_sum(struct sl_mpi_call *c, uint32_t round) {
    const struct sl_collective *call = &c->call;
    const struct sl_positions here = sl_mpi_housemates(c);
    const void **input = c->communicator->input;
    void *sum = output_of(c, round, lane_of(c));
    int inputs = 0;
    if (!is_first(c)) input[inputs++] = sum;
    for (int peer = here.begin; peer < here.end; peer++)
        input[inputs++] = values_of(c, peer, round) + share_of(c, round, lane_of(c)).begin;
    if (elements_of(c, round))
        sl_reduce(sl_operation_of(call)->reduction, call->dtype, is_last(c) ? call->scale : 1, elements_of(c, round),
                  inputs, input, 1, &sum);
}

static bool fold_round(struct sl_mpi_call *c) {
    const uint32_t round = c->folded;
    if (!is_lane(c) || round == c->written || sl_mpi_find_unwritten(c, c->before + round + 1) >= 0) return false;
    if (!sl_mpi_have_ended(c, 1, &c->receive[on_its_way(round)])) return false;
    if (!sl_mpi_state_alike(c, sl_mpi_housemates(c))) return false;
    continue_sum(c, round);
    if (!is_last(c)) send_share(c, round, 1);
    atomic_store(&sl_mpi_own_words(c)->folded, c->before + ++c->folded); /* SC: see sl_mpi_want_room */
    sl_mpi_ring_housemates_for_room(c);
    return true;
}

/* Once a sum has been sent on, the whole sum is received in its place. */
static bool turn_round(struct sl_mpi_call *c) {
    if (!is_lane(c) || is_last(c) || c->turned == c->folded) return false;
    if (!sl_mpi_have_ended(c, 1, &c->send[on_its_way(c->turned)])) return false;
    receive_share(c, c->turned++, 1);
    return true;
}

/* A member that still needs the piece for the lane's next sum, or -1. */
static int find_behind(const struct sl_mpi_call *c) {
    return sl_mpi_find_unread(c, c->before + c->summed + 1 - SL_MPI_PIECES);
}

static bool take_sum(struct sl_mpi_call *c) {
    const uint32_t round = c->summed;
    const int me = c->call.group->rank, back = on_its_way_back(round);
    if (!is_lane(c) || round == (is_last(c) ? c->folded : c->turned)) return false;
    if (!sl_mpi_have_ended(c, 1, &c->receive[back]) || !sl_mpi_have_ended(c, 1, &c->send[back])) return false;
    if (find_behind(c) >= 0) {
        sl_mpi_want_room(true);
        if (find_behind(c) >= 0) return false;
    }
    if (!is_first(c)) send_share(c, round, -1);
    const struct sl_mpi_range share = share_of(c, round, lane_of(c));
    memcpy(sums_of(c, me, round) + share.begin, output_of(c, round, lane_of(c)), share.count);
    sl_mpi_count_piece(c, share.count);
    atomic_store_explicit(&sl_mpi_own_words(c)->summed, c->before + ++c->summed, memory_order_release);
    sl_mpi_ring_housemates(c);
    return true;
}

static bool read_round(struct sl_mpi_call *c) {
    const int begin = sl_mpi_housemates(c).begin;
    if (c->read == c->written || find_unsummed(c, c->before + c->read + 1) >= 0) return false;
    if (!sl_mpi_state_alike(c, (struct sl_positions){begin, begin + hosts_of(c)->lanes})) return false;
    for (int lane = 0; lane < hosts_of(c)->lanes; lane++) {
        const struct sl_mpi_range share = share_of(c, c->read, lane);
        if (lane != lane_of(c))
            memcpy(output_of(c, c->read, lane), sums_of(c, begin + lane, c->read) + share.begin, share.count);
    }
    atomic_store(&sl_mpi_own_words(c)->read, c->before + ++c->read); /* SC: see sl_mpi_want_room */
    sl_mpi_ring_housemates_for_room(c);
    return true;
}

static bool chain_on(struct sl_mpi_call *c) {
    for (bool moved = true; moved;) {
        moved = write_round(c);
        moved |= fold_round(c);
        moved |= turn_round(c);
        moved |= take_sum(c);
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

const struct sl_mpi_route sl_mpi_chained = {begin_chain, chain_on, find_late, is_beside, is_beside, is_lane, peer_at};
