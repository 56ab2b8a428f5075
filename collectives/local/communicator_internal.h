/* communicator_internal.h - what the members of a group tell each other, for groups.c and collectives.c. */
#ifndef SL_COLLECTIVES_LOCAL_COMMUNICATOR_INTERNAL_H
#define SL_COLLECTIVES_LOCAL_COMMUNICATOR_INTERNAL_H

#include "collectives/local/engine.h"

SL_BEGIN_C

struct member {
    alignas(SL_CACHE_LINE) struct sl_local_word arrived;                    /* calls published */
    _Atomic uint32_t kind[SL_MAX_IN_FLIGHT];                                /* by slot: a hash of the call's word */
    alignas(SL_CACHE_LINE) struct sl_local_word finished[SL_MAX_IN_FLIGHT]; /* by slot: 1 + number of the call */
    alignas(SL_CACHE_LINE) struct sl_collective call[SL_MAX_IN_FLIGHT];     /* `group` is for the member itself */
    struct sl_local_stamp started[SL_MAX_IN_FLIGHT], ended[SL_MAX_IN_FLIGHT];
    /* Its marks: when its buffers may be moved, and when it has moved; NULL: at once. A later call's are as good. */
    _Atomic(void *) ready[SL_MAX_IN_FLIGHT], moved[SL_MAX_IN_FLIGHT];
    int under_way; /* calls started and not ended: its own */
};

struct sl_local_communicator {
    struct sl_local_communicator *next;
    int size;
    int coordinate[SL_MAX_COORDINATES];
    uint64_t opened; /* by which coordinates. Under the run's lock, as is: */
    int left;        /* members that have not closed it */
    void *memory;    /* sl_group_memory's, with */
    size_t bytes;
    char name[64]; /* for places */
    struct member member[];
};

SL_END_C
#endif
