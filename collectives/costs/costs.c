/* costs.c - see costs.h. */
#include "collectives/costs/costs.h"

/* ---- the choice ---- */

/* Whether all members get one result, of all values. */
static bool combines_for_all(const struct sl_collective *call) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    return operation->reduction != SL_NO_REDUCTION && !operation->cuts;
}

/* Whether a sum can be interrupted between two members without other bits. */
static bool continues(const struct sl_collective *call) {
    const bool in_order = sl_operation_of(call)->reduction != SL_TREE && call->group->size <= SL_SUM_BLOCK;
    return in_order && (call->dtype == SL_F32 || call->dtype == SL_I32);
}

enum sl_algorithm sl_algorithm_of(const struct sl_layout *layout, const struct sl_collective *call) {
    if (layout->hosts == 0) return SL_ALGORITHM_MESSAGES;
    if (layout->hosts == 1) return SL_ALGORITHM_MAILBOXES;
    if (call->operation != SL_BARRIER && !combines_for_all(call)) return SL_ALGORITHM_MESSAGES;
    if (sl_block_bytes(call) <= SL_SHORT_CALL) return SL_ALGORITHM_GATHERED;
    return continues(call) && layout->hosts < layout->members ? SL_ALGORITHM_CHAINED : SL_ALGORITHM_MESSAGES;
}

/* ---- members and shares ---- */

static int members_on(const struct sl_layout *layout, int host) {
    return layout->first[host + 1] - layout->first[host];
}

int sl_layout_lanes(const struct sl_layout *layout) {
    int least = SL_MOST_LANES;
    for (int host = 0; host < layout->hosts; host++)
        if (members_on(layout, host) < least) least = members_on(layout, host);
    return least;
}

static int host_at(const struct sl_layout *layout, const int *host_of, int position) {
    int host = 0;
    if (host_of) return host_of[position];
    while (layout->hosts > 1 && layout->first[host + 1] <= position) host++;
    return host;
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
    for (uint64_t round = 0; round < rounds_of(bytes, most) && readers; round++) {
        const uint64_t now = bytes_of_round(bytes, most, round);
        sl_traffic_add(sent, SL_WAY_MEMORY, 1, blocks * now);
        if (shares) sl_traffic_add(sent, SL_WAY_MEMORY, 1, share_of(now, me, size));
        sent->bells += shares ? 2 * readers : readers;
    }
}

static void cost_gathered(const struct sl_collective *call, const struct sl_layout *layout, struct sl_traffic *sent) {
    const int me = call->group->rank, host = host_at(layout, NULL, me), hosts = layout->hosts;
    const uint64_t bytes = sl_block_bytes(call);
    const bool leads = me == layout->first[host];
    sl_traffic_add(sent, SL_WAY_MEMORY, 1, bytes);
    if (!leads) sent->bells++;
    if (!leads) return;
    sl_traffic_add(sent, SL_WAY_MEMORY, 1, bytes);
    sent->bells += (uint64_t)members_on(layout, host) - 1;
    for (int distance = 1; distance < hosts; distance *= 2) {
        const int moved = hosts - distance < distance ? hosts - distance : distance;
        uint64_t members = 0;
        for (int i = 0; i < moved; i++) members += (uint64_t)members_on(layout, (host + i) % hosts);
        sl_traffic_add(sent, SL_WAY_NETWORK, 2, members * bytes + SL_CALL_NOTE_BYTES);
    }
}

static void cost_chained(const struct sl_collective *call, const struct sl_layout *layout, struct sl_traffic *sent) {
    const int me = call->group->rank, host = host_at(layout, NULL, me), lane = me - layout->first[host];
    const int lanes = sl_layout_lanes(layout), ways = (host > 0) + (host < layout->hosts - 1);
    const uint64_t bytes = sl_block_bytes(call), most = round_bytes(1);
    const bool passes = lane < lanes;
    for (uint64_t round = 0; round < rounds_of(bytes, most); round++) {
        const uint64_t now = bytes_of_round(bytes, most, round), share = share_of(now, lane, lanes);
        sl_traffic_add(sent, SL_WAY_MEMORY, 1, now);
        sent->bells += (uint64_t)(lanes - passes);
        if (!passes) continue;
        sl_traffic_add(sent, SL_WAY_MEMORY, 1, share);
        sent->bells += (uint64_t)members_on(layout, host) - 1;
        sl_traffic_add(sent, SL_WAY_NETWORK, (uint64_t)ways, (uint64_t)ways * share);
    }
    if (passes) sl_traffic_add(sent, SL_WAY_NETWORK, (uint64_t)ways, (uint64_t)ways * SL_CALL_NOTE_BYTES);
}

/* Bytes of each of a member's messages to the one at PEER, of which there are at most two. */
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
