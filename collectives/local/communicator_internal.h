/* communicator_internal.h - what the members of a group tell each other, for groups.c, gates.c and collectives.c. */
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
    int under_way;                   /* calls started and not ended: its own, and so are these: */
    uint32_t passes;                 /* calls that it has taken to the gates; */
    uint32_t pass[SL_MAX_IN_FLIGHT]; /* by slot: which of those the call is */
    bool opened;                     /* under the run's lock */
};

/* ---- gates (gates.c) ----
 *
 * A gate is a point of a call that no member of a large group passes before all have come there. Members count
 * themselves in block by block; the last of a block counts the block in, and the last of all opens the gate, which is
 * one word. So each member waits once, for one word, however many they are.
 *
 * The calls that concern all members alike go through gates, and have numbers of their own there, which all members
 * agree on: nobody comes with call number N + SL_MAX_IN_FLIGHT before all have come with N. */

enum {
    SL_LOCAL_FEW = 64,    /* members: larger groups have gates. Members of a block, too */
    SL_LOCAL_SHORT = 4096 /* bytes: so much of a sum is taken by the last to come, for all */
};

struct block {
    alignas(SL_CACHE_LINE) _Atomic uint32_t came[SL_MAX_IN_FLIGHT];
};

struct gate {
    alignas(SL_CACHE_LINE) struct sl_local_word open[SL_MAX_IN_FLIGHT]; /* 1 + number of the call */
    alignas(SL_CACHE_LINE) _Atomic uint32_t came[SL_MAX_IN_FLIGHT];     /* blocks */
    struct sl_local_stamp opened[SL_MAX_IN_FLIGHT];
    _Atomic int missing; /* the member that was missing when somebody looked last: those before it tend to have come */
    struct block *block;
};

struct sl_local_communicator {
    struct sl_local_communicator *next;
    int size;
    int *coordinate; /* [size] */
    int left;        /* members that have not closed it: under the run's lock */
    void *memory;    /* sl_group_memory's, with */
    size_t bytes;
    char name[64]; /* for places */
    /* Of groups that have gates: where members' calls have arrived, and where they have finished. */
    struct gate arrived, finished;
    bool summed[SL_MAX_IN_FLIGHT]; /* by number at the gates: the last to come has taken the sum, */
    char (*sum)[SL_LOCAL_SHORT];   /* [SL_MAX_IN_FLIGHT], which is here */
    struct member member[];
};

/* Blocks of SIZE members. */
static inline int sl_local_blocks(int size) { return (size + SL_LOCAL_FEW - 1) / SL_LOCAL_FEW; }

/* Whether CALL goes through gates. */
bool sl_local_has_gates(const struct sl_collective *call);

/* The member at position RANK comes to GATE with call number PASS. Whether it is the last, who then has to open it. */
bool sl_local_come(struct sl_local_communicator *communicator, struct gate *gate, int rank, uint32_t pass);
void sl_local_open(struct sl_local_coordinate *me, struct gate *gate, uint32_t pass);

/* Waits until GATE is open for call number PASS. LACK says who has not come. */
int sl_local_await_open(struct sl_local_coordinate *me, struct gate *gate, uint32_t pass,
                        const struct sl_local_lack *lack);

/* ---- moving (move.c): between sl_local_begin_moving and sl_local_end_moving ---- */

/* The caller's share of MINE, which all MEMBERs whose data it moves have published in SLOT. */
void sl_local_move(const struct sl_collective *mine, const struct member *member, uint32_t slot);
/* All of a sum that is one contiguous array, to SUM. */
void sl_local_sum(const struct sl_collective *call, const struct member *member, uint32_t slot, void *sum);
/* The blocks INPUT[i] for this member of what CALL gathers, to its output. */
void sl_local_gather(const struct sl_collective *call, const char *const *input);

SL_END_C
#endif
