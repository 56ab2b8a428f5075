/* spans.h - ranges of bytes in calls that are chained over hosts. */
#ifndef SL_COLLECTIVES_COSTS_SPANS_H
#define SL_COLLECTIVES_COSTS_SPANS_H

#include "collectives/costs/costs.h"

SL_BEGIN_C

/* Bytes [begin, end) of a call's values. If the operation cuts or joins, these are all members' blocks, one after
 * another; otherwise they are one block. */
struct sl_span {
    uint64_t begin, end;
};

static inline uint64_t sl_span_bytes(struct sl_span span) { return span.end - span.begin; }
/* The bytes that two spans share. */
struct sl_span sl_span_within(struct sl_span a, struct sl_span b);

/* Bytes of all values, and of the values of one member that contributes some. */
uint64_t sl_call_bytes(const struct sl_collective *call);
uint64_t sl_member_bytes(const struct sl_collective *call);

/* Whether each member has a block for each other one. */
static inline bool sl_call_swaps(const struct sl_collective *call) {
    return sl_operation_of(call)->cuts && sl_operation_of(call)->joins;
}
/* If such a call is gathered: bytes of HOST's slot number SLOT before STEP (collectives/mpi/swap.c). */
uint64_t sl_swapped_bytes(const struct sl_layout *layout, const struct sl_collective *call, int host, int slot,
                          int step);

/* Whether all members receive one member's values. */
static inline bool sl_call_spreads(const struct sl_collective *call) { return call->operation == SL_BROADCAST; }
/* Whether the call's own member contributes values; all do in most operations. */
static inline bool sl_call_brings(const struct sl_collective *call) {
    return !sl_call_spreads(call) || call->group->rank == call->root;
}
/* Number of members that contribute values, of those on COUNT hosts: HOST and the following ones, cyclically. */
int sl_layout_bringing(const struct sl_layout *layout, const struct sl_collective *call, int host, int count);

/* Values that the call's own member contributes, and values that it needs as a result. */
struct sl_span sl_span_brought(const struct sl_collective *call);
struct sl_span sl_span_needed(const struct sl_collective *call);

/* Values that HOST sends on to the next host, and values that it sends back to the previous host. */
struct sl_span sl_span_passed_on(const struct sl_collective *call, const struct sl_layout *layout, int host);
struct sl_span sl_span_sent_back(const struct sl_collective *call, const struct sl_layout *layout, int host);

/* Number of rounds; the values of a round; and of these the share of lane INDEX among LANES, which begins at a cache
 * line. */
uint64_t sl_chain_rounds(const struct sl_collective *call);
struct sl_span sl_chain_round(const struct sl_collective *call, uint64_t round);
struct sl_span sl_chain_share(struct sl_span round, int index, int lanes);

/* Whether partial sums travel as f32, in separate memory: if there are several, or if values have less precision. */
bool sl_chain_widens(const struct sl_collective *call);
/* Bytes of a message that has partial sums of BYTES of values over the first MEMBERS members. */
uint64_t sl_chain_message(const struct sl_collective *call, int members, uint64_t bytes);

SL_END_C
#endif
