/* spans.h - calls that are chained over hosts: which bytes pass where. */
#ifndef SL_COLLECTIVES_COSTS_SPANS_H
#define SL_COLLECTIVES_COSTS_SPANS_H

#include "collectives/costs/costs.h"

SL_BEGIN_C

/* Bytes [begin, end) of a call's values. These are one block, or all members' blocks, one after another, if the
 * operation cuts or joins. */
struct sl_span {
    uint64_t begin, end;
};

static inline uint64_t sl_span_bytes(struct sl_span span) { return span.end - span.begin; }
/* The bytes that two spans share. */
struct sl_span sl_span_within(struct sl_span a, struct sl_span b);

/* Bytes of all values, and of those that one member brings. */
uint64_t sl_call_bytes(const struct sl_collective *call);
uint64_t sl_member_bytes(const struct sl_collective *call);

/* Values that the call's own member brings, and those that it needs. */
struct sl_span sl_span_brought(const struct sl_collective *call);
struct sl_span sl_span_needed(const struct sl_collective *call);

/* Values that HOST passes on to the next host, and those that it sends back to the host before it. */
struct sl_span sl_span_passed_on(const struct sl_collective *call, const struct sl_layout *layout, int host);
struct sl_span sl_span_sent_back(const struct sl_collective *call, const struct sl_layout *layout, int host);

/* Number of rounds, and the values of one; the share of the lane at INDEX of LANES, which begins at a cache line. */
uint64_t sl_chain_rounds(const struct sl_collective *call);
struct sl_span sl_chain_round(const struct sl_collective *call, uint64_t round);
struct sl_span sl_chain_share(struct sl_span round, int index, int lanes);

/* Whether sums on their way are f32 in memory of their own: several of them, or more precise than the values. */
bool sl_chain_widens(const struct sl_collective *call);
/* Bytes of a message with values of BYTES after the first MEMBERS members. */
uint64_t sl_chain_message(const struct sl_collective *call, int members, uint64_t bytes);

SL_END_C
#endif
