/* traffic.h - counts of the messages and bytes that a coordinate sends, by their path. */
#ifndef SL_SPMD_TRAFFIC_H
#define SL_SPMD_TRAFFIC_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Paths from one coordinate to another: shared memory, messages within a host, and messages between hosts. */
enum sl_way { SL_WAY_MEMORY, SL_WAY_HOST, SL_WAY_NETWORK, SL_WAYS };

/* Filling a piece of shared memory counts as one message for any number of readers. Bells wake the readers; a bell that
 * is rung only if its reader is known to sleep is not counted. */
struct sl_traffic {
    uint64_t messages[SL_WAYS], bytes[SL_WAYS], bells;
};

static inline void sl_traffic_add(struct sl_traffic *traffic, enum sl_way way, uint64_t messages, uint64_t bytes) {
    traffic->messages[way] += messages;
    traffic->bytes[way] += bytes;
}

SL_END_C
#endif
