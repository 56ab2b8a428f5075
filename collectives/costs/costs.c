/* costs.c - see costs.h. */
#include "collectives/costs/costs.h"

#include "collectives/costs/spans.h"

/* ---- the choice ---- */

/* Whether all members get one result, of all values. */
static bool combines_for_all(const struct sl_collective *call) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    return operation->reduction != SL_NO_REDUCTION && !operation->cuts;
}

/* Whether every value has readers on all hosts or is summed over all hosts. */
static bool can_be_chained(const struct sl_collective *call) {
    return (sl_call_meets(call) || sl_call_spreads(call)) && call->operation != SL_BARRIER && !sl_call_swaps(call);
}

/* Whether a leader's mailbox has room for the results of all members of its host. */
static bool is_short(const struct sl_layout *layout, const struct sl_collective *call) {
    const uint64_t results = sl_call_bytes(call) * (sl_call_swaps(call) ? (uint64_t)sl_layout_most(layout) : 1);
    return sl_member_bytes(call) <= SL_SHORT_CALL && results <= SL_PIECE_BYTES;
}

enum sl_algorithm sl_algorithm_of(const struct sl_layout *layout, const struct sl_collective *call) {
    if (layout->hosts == 0) return SL_ALGORITHM_MESSAGES;
    if (layout->hosts == 1) return SL_ALGORITHM_MAILBOXES;
    if (call->operation == SL_BARRIER) return SL_ALGORITHM_GATHERED;
    if (!can_be_chained(call) && !sl_call_swaps(call)) return SL_ALGORITHM_MESSAGES;
    if (is_short(layout, call)) return SL_ALGORITHM_GATHERED;
    if (sl_call_swaps(call)) return SL_ALGORITHM_MESSAGES;
    const bool copies = sl_call_spreads(call) && layout->members > 2; /* messages would carry a byte several times */
    return layout->hosts < layout->members || copies ? SL_ALGORITHM_CHAINED : SL_ALGORITHM_MESSAGES;
}

/* ---- members and shares ---- */

static int host_at(const struct sl_layout *layout, const int *host_of, int position) {
    return host_of ? host_of[position] : sl_layout_host(layout, position);
}

/* Returns the size of share INDEX if BYTES are divided into SHARES, each of which begins at a cache line. */
static uint64_t share_of(uint64_t bytes, int index, int shares) {
    const uint64_t lines = (bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE, number = (uint64_t)shares;
    const uint64_t most = (lines + number - 1) / number * SL_CACHE_LINE, begin = most * (uint64_t)index;
    const uint64_t left = begin < bytes ? bytes - begin : 0;
    return left < most ? left : most;
}

/* Returns how many bytes of a block go into one round. In a round, all BLOCKS share one piece of a mailbox. */
static uint64_t round_bytes(uint64_t blocks) { return SL_PIECE_BYTES / blocks / SL_CACHE_LINE * SL_CACHE_LINE; }

static uint64_t rounds_of(uint64_t bytes, uint64_t most) { return bytes ? (bytes + most - 1) / most : 1; }

static uint64_t bytes_of_round(uint64_t bytes, uint64_t most, uint64_t round) {
    const uint64_t left = bytes - most * round;
    return left < most ? left : most;
}

/* ---- the algorithms ---- */

static void cost_mailboxes(const struct sl_collective *call, struct sl_traffic *sent) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    const struct sl_positions to = sl_call_destinations(call);
    const int me = call->group->rank, size = call->group->size;
    const uint64_t readers = (uint64_t)(to.end - to.begin - sl_has_position(to, me)), bytes = sl_block_bytes(call);
    const uint64_t blocks = operation->cuts ? readers : 1, most = round_bytes(operation->cuts ? (uint64_t)size : 1);
    const bool shares = combines_for_all(call) && size > 2 && bytes > SL_SHORT_CALL;
    const bool rings = !sl_call_meets(call) || me == size - 1; /* for the members that wait for all, the last one */
    for (uint64_t round = 0; round < rounds_of(bytes, most) && readers; round++) {
        const uint64_t now = bytes_of_round(bytes, most, round);
        sl_traffic_add(sent, SL_WAY_MEMORY, 1, blocks * now);
        if (shares) sl_traffic_add(sent, SL_WAY_MEMORY, 1, share_of(now, me, size));
        if (rings) sent->bells += shares ? 2 * readers : readers;
    }
}

/* Bytes that a leader writes for the members of its host. */
static uint64_t result_bytes(const struct sl_collective *call, const struct sl_layout *layout, int host) {
    if (!sl_operation_of(call)->cuts) return sl_call_bytes(call);
    return sl_span_bytes(sl_span_needed(call)) * (uint64_t)sl_layout_members(layout, host);
}

/* Bytes of the slots that a leader sends in a step. */
static uint64_t swapped_in(const struct sl_collective *call, const struct sl_layout *layout, int host, int step) {
    uint64_t bytes = 0;
    for (int slot = 1; slot < layout->hosts; slot++)
        if (slot & 1 << step) bytes += sl_swapped_bytes(layout, call, host, slot, step);
    return bytes;
}

static void cost_gathered(const struct sl_collective *call, const struct sl_layout *layout, struct sl_traffic *sent) {
    const int me = call->group->rank, host = sl_layout_host(layout, me);
    const uint64_t bytes = sl_member_bytes(call);
    const bool leads = me == layout->first[host];
    if (sl_call_brings(call)) sl_traffic_add(sent, SL_WAY_MEMORY, 1, bytes);
    if (!leads) sent->bells += me == (sl_call_spreads(call) ? call->root : layout->first[host + 1] - 1);
    if (!leads) return;
    sl_traffic_add(sent, SL_WAY_MEMORY, 1, result_bytes(call, layout, host));
    sent->bells += (uint64_t)sl_layout_members(layout, host) - 1;
    for (int step = 0; 1 << step < layout->hosts; step++) {
        const int distance = 1 << step, left = layout->hosts - distance;
        const int members = sl_layout_bringing(layout, call, host, left < distance ? left : distance);
        const uint64_t moved = sl_call_swaps(call) ? swapped_in(call, layout, host, step) : (uint64_t)members * bytes;
        if (members) sl_traffic_add(sent, SL_WAY_NETWORK, 2, moved + SL_CALL_NOTE_BYTES);
    }
}

static void add_if_any(struct sl_traffic *sent, enum sl_way way, uint64_t bytes) {
    if (bytes) sl_traffic_add(sent, way, 1, bytes);
}

static void cost_chained(const struct sl_collective *call, const struct sl_layout *layout, struct sl_traffic *sent) {
    const int me = call->group->rank, host = sl_layout_host(layout, me), lane = me - layout->first[host];
    const int lanes = sl_layout_lanes(layout), ways = (host > 0) + (host < layout->hosts - 1);
    const struct sl_span brought = sl_span_brought(call), on = sl_span_passed_on(call, layout, host);
    const struct sl_span back = sl_span_sent_back(call, layout, host);
    const bool passes = lane < lanes;
    for (uint64_t round = 0; round < sl_chain_rounds(call); round++) {
        const struct sl_span values = sl_chain_round(call, round), share = sl_chain_share(values, lane, lanes);
        add_if_any(sent, SL_WAY_MEMORY, sl_span_bytes(sl_span_within(brought, values)));
        if (me == layout->first[host + 1] - 1) sent->bells += (uint64_t)(lanes - passes);
        if (!passes) continue;
        add_if_any(sent, SL_WAY_MEMORY, sl_span_bytes(share));
        if (lane == lanes - 1) sent->bells += (uint64_t)sl_layout_members(layout, host) - 1;
        const uint64_t passed = sl_span_bytes(sl_span_within(on, share));
        if (host < layout->hosts - 1)
            add_if_any(sent, SL_WAY_NETWORK, sl_chain_message(call, layout->first[host + 1], passed));
        if (host > 0) add_if_any(sent, SL_WAY_NETWORK, sl_span_bytes(sl_span_within(back, share)));
    }
    if (passes) sl_traffic_add(sent, SL_WAY_NETWORK, (uint64_t)ways, (uint64_t)ways * SL_CALL_NOTE_BYTES);
}

/* Bytes of the member's messages to the member at position PEER: at most two messages; 0: none. */
static void find_messages(const struct sl_collective *call, int peer, uint64_t message[2]) {
    const uint64_t bytes = sl_block_bytes(call);
    const bool shares = combines_for_all(call) && bytes > SL_SHORT_CALL;
    message[0] = shares ? share_of(bytes, peer, call->group->size) : bytes;
    message[1] = shares ? share_of(bytes, call->group->rank, call->group->size) : 0;
}

static void cost_messages(const struct sl_collective *call, const struct sl_layout *layout, const int *host_of,
                          struct sl_traffic *sent) {
    const struct sl_positions to = sl_call_destinations(call);
    const int me = call->group->rank, host = host_at(layout, host_of, me);
    for (int peer = to.begin; peer < to.end; peer++) {
        const enum sl_way link = host_at(layout, host_of, peer) == host ? SL_WAY_HOST : SL_WAY_NETWORK;
        uint64_t message[2];
        if (peer == me) continue;
        find_messages(call, peer, message);
        sl_traffic_add(sent, link, 1, SL_CALL_NOTE_BYTES);
        for (int i = 0; i < 2; i++)
            if (message[i] || (i == 0 && call->operation == SL_BARRIER)) sl_traffic_add(sent, link, 1, message[i]);
    }
}

void sl_call_costs(const struct sl_collective *call, const struct sl_layout *layout, const int *host_of,
                   struct sl_traffic *sent) {
    switch (sl_algorithm_of(layout, call)) {
    case SL_ALGORITHM_MAILBOXES:
        cost_mailboxes(call, sent);
        break;
    case SL_ALGORITHM_GATHERED:
        cost_gathered(call, layout, sent);
        break;
    case SL_ALGORITHM_CHAINED:
        cost_chained(call, layout, sent);
        break;
    case SL_ALGORITHM_MESSAGES:
        cost_messages(call, layout, host_of, sent);
        break;
    }
}
