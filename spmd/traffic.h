/* traffic.h - counts of the messages and bytes that a coordinate sends, by link. */
#ifndef SL_SPMD_TRAFFIC_H
#define SL_SPMD_TRAFFIC_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Ways from one coordinate to another: memory that both see, messages within a host, and messages between hosts. */
enum sl_link { SL_LINK_MEMORY, SL_LINK_HOST, SL_LINK_NETWORK, SL_LINKS };

/* A piece of shared memory that is filled once counts as one message, however many read it. Bells wake the coordinates
 * that read it; those rung only for a reader that is known to sleep are not counted. */
struct sl_traffic {
    uint64_t messages[SL_LINKS], bytes[SL_LINKS], bells;
};

static inline void sl_traffic_add(struct sl_traffic *traffic, enum sl_link link, uint64_t messages, uint64_t bytes) {
    traffic->messages[link] += messages;
    traffic->bytes[link] += bytes;
}

SL_END_C
#endif
