/* traffic.h - counts of the messages and bytes that a coordinate sends, by their way. */
#ifndef SL_SPMD_TRAFFIC_H
#define SL_SPMD_TRAFFIC_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Ways from one coordinate to another: memory that both see, messages within a host, and messages between hosts. */
enum sl_way { SL_WAY_MEMORY, SL_WAY_HOST, SL_WAY_NETWORK, SL_WAYS };

/* A piece of shared memory that is filled once counts as one message, however many read it. Bells wake the coordinates
 * that read it; those rung only for a reader that is known to sleep are not counted. */
struct sl_traffic {
    uint64_t messages[SL_WAYS], bytes[SL_WAYS], bells;
};

static inline void sl_traffic_add(struct sl_traffic *traffic, enum sl_way way, uint64_t messages, uint64_t bytes) {
    traffic->messages[way] += messages;
    traffic->bytes[way] += bytes;
}

SL_END_C
#endif
