/* communicator_internal.h - state shared by the members of a group, for groups.c, gates.c and collectives.c. */
#ifndef SL_COLLECTIVES_LOCAL_COMMUNICATOR_INTERNAL_H
#define SL_COLLECTIVES_LOCAL_COMMUNICATOR_INTERNAL_H

#include "collectives/costs/costs.h"
#include "collectives/local/engine.h"

SL_BEGIN_C

struct member {
    alignas(SL_CACHE_LINE) struct sl_local_word arrived;                    /* number of calls published */
    _Atomic uint32_t kind[SL_MAX_IN_FLIGHT];                                /* by slot: a hash of the call's word */
    alignas(SL_CACHE_LINE) struct sl_local_word finished[SL_MAX_IN_FLIGHT]; /* by slot: 1 + number of the call */
    alignas(SL_CACHE_LINE) struct sl_collective call[SL_MAX_IN_FLIGHT];     /* `group` is only for the member itself */
    struct sl_local_stamp started[SL_MAX_IN_FLIGHT], ended[SL_MAX_IN_FLIGHT];
    /* Marks in the member's queue, by slot. Behind `ready` peers may read and write its buffers; behind `moved` its own
     * moves are done. NULL: no mark to wait for. The marks of a later call may be used, too. */
    _Atomic(void *) ready[SL_MAX_IN_FLIGHT], moved[SL_MAX_IN_FLIGHT];
    int under_way;                   /* calls started and not ended; only the member uses it, and so are */
    uint32_t passes;                 /* its number of calls through gates, */
    uint32_t pass[SL_MAX_IN_FLIGHT]; /* and by slot the call's number at the gates */
    bool opened;                     /* under the run's lock */
};

/* ---- gates (gates.c) ----
 *
 * A gate is a point of a call: no member of a large group passes it before all members have reached it. Members count
 * themselves in by blocks; the last member of a block counts the block in, and the last member of all opens the gate,
 * which is one word. So each member waits once, for one word, for any group size.
 *
 * Calls that concern all members alike go through gates, and have numbers of their own there, which are the same for
 * all members. No member reaches a gate with call number N + SL_MAX_IN_FLIGHT before all have reached it with N. */

enum {
    SL_LOCAL_FEW = SL_FEW_THREADS,  /* members: larger groups have gates. Also the number of members per block */
    SL_LOCAL_SHORT = SL_SHORT_CALL, /* bytes: the last member to arrive computes sums up to this size for all */
};

struct block {
    alignas(SL_CACHE_LINE) _Atomic uint32_t came[SL_MAX_IN_FLIGHT];
};

struct gate {
    alignas(SL_CACHE_LINE) struct sl_local_word open[SL_MAX_IN_FLIGHT]; /* 1 + number of the call */
    alignas(SL_CACHE_LINE) _Atomic uint32_t came[SL_MAX_IN_FLIGHT];     /* blocks */
    struct sl_local_stamp opened[SL_MAX_IN_FLIGHT];
    _Atomic int missing; /* the missing member found by the last search: members before it have probably arrived */
    struct block *block;
};

struct sl_local_communicator {
    struct sl_local_communicator *next;
    int size;
    int *coordinate; /* [size] */
    int left;        /* members still to close it; under the run's lock */
    void *memory;    /* sl_group_memory's; with its size */
    size_t bytes;
    char name[64]; /* for verdicts' places */
    /* For groups with gates: the gates of arriving and of finishing. */
    struct gate arrived, finished;
    bool summed[SL_MAX_IN_FLIGHT]; /* by number at the gates: whether the last member to arrive has computed the sum, */
    char (*sum)[SL_LOCAL_SHORT];   /* [SL_MAX_IN_FLIGHT]: these sums */
    struct member member[];
};

/* Number of blocks of SIZE members. */
static inline int sl_local_blocks(int size) { return (size + SL_LOCAL_FEW - 1) / SL_LOCAL_FEW; }

/* Whether CALL goes through gates. */
bool sl_local_has_gates(const struct sl_collective *call);

/* Counts the member at position RANK in at GATE for call number PASS. Returns whether it is the last, which must open
 * the gate. */
bool sl_local_come(struct sl_local_communicator *communicator, struct gate *gate, int rank, uint32_t pass);
void sl_local_open(struct sl_local_coordinate *me, struct gate *gate, uint32_t pass);

/* Waits until GATE is open for call number PASS. LACK finds a missing member. */
int sl_local_await_open(struct sl_local_coordinate *me, struct gate *gate, uint32_t pass,
                        const struct sl_local_lack *lack);

/* ---- moving (move.c): between sl_local_begin_moving and sl_local_end_moving ---- */

/* Moves the caller's share of the data of MINE. All MEMBERs whose data it moves have published the call in SLOT. Adds
 * the blocks and shares that it reads from, or writes to, others' memory to SENT, unless it is NULL. */
void sl_local_move(const struct sl_collective *mine, const struct member *member, uint32_t slot,
                   struct sl_traffic *sent);
/* Writes the complete sum of CALL, whose input is one contiguous array, to SUM. */
void sl_local_sum(const struct sl_collective *call, const struct member *member, uint32_t slot, void *sum);

/* ---- counts ---- */

/* The coordinate's counts of calls like CALL; NULL: they are not wanted. */
static inline struct sl_traffic *sl_local_counts(const struct sl_local_coordinate *me,
                                                 const struct sl_collective *call) {
    return me->spmd.sent ? &me->spmd.sent[call->operation] : NULL;
}
/* Adds MESSAGES of BYTES each. */
static inline void sl_local_count(struct sl_traffic *sent, size_t messages, size_t bytes) {
    if (sent) sl_traffic_add(sent, SL_WAY_MEMORY, messages, messages * bytes);
}
static inline void sl_local_count_bell(struct sl_traffic *sent) {
    if (sent) sent->bells++;
}
/* Copies CALL's blocks INPUT[i] to this member's output. */
void sl_local_gather(const struct sl_collective *call, const char *const *input);

SL_END_C
#endif
