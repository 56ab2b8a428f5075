/* costs.h - the algorithms of engines local and mpi as numbers: which algorithm of engine mpi a call takes, and how
 * many messages, bytes and bells a member sends in it. The engine itself chooses by sl_algorithm_of. docs/engines.md
 * and collectives/mpi/hosts.h describe the algorithms. */
#ifndef SL_COLLECTIVES_COSTS_COSTS_H
#define SL_COLLECTIVES_COSTS_COSTS_H

#include "collectives/operations.h"
#include "spmd/traffic.h"

SL_BEGIN_C

enum {
    SL_SHORT_CALL = 4096,       /* bytes of a member: each member, or each host, combines everything by itself */
    SL_PIECE_BYTES = 64 * 1024, /* of a mailbox, which a round fills */
    SL_MOST_LANES = 16,         /* of a host: members that pass long sums on */
    SL_FEW_THREADS = 64,        /* members of engine local: larger groups have gates */
    SL_CALL_NOTE_BYTES = 144,   /* a description of the call, which goes beside messages if calls are not checked */
};

/* The hosts of a group's members. */
struct sl_layout {
    int members;
    int hosts;        /* 0: the members of some host are not neighbours in the group, or have no mailboxes */
    const int *first; /* [hosts + 1]: position of the first member on each host; NULL if there are fewer than two */
};

enum sl_algorithm {
    SL_ALGORITHM_MAILBOXES, /* members of one host read one another's mailboxes */
    SL_ALGORITHM_GATHERED,  /* leaders of hosts gather all values, and combine them for their hosts */
    SL_ALGORITHM_CHAINED,   /* values travel from host to host, and back */
    SL_ALGORITHM_MESSAGES,  /* a message from each member to each for which it has data */
};
enum sl_algorithm sl_algorithm_of(const struct sl_layout *layout, const struct sl_collective *call);

/* Returns the number of members on HOST. */
static inline int sl_layout_members(const struct sl_layout *layout, int host) {
    return layout->first[host + 1] - layout->first[host];
}

/* Returns the host of the member at POSITION. */
int sl_layout_host(const struct sl_layout *layout, int position);

/* Returns the number of members on the host that has most. */
int sl_layout_most(const struct sl_layout *layout);

/* Returns how many members of each host pass long sums on: at most SL_MOST_LANES, and not more than the smallest host
 * has. */
int sl_layout_lanes(const struct sl_layout *layout);

/* Adds to SENT the traffic of the call's own member. If several members wait for several, the last one to write rings
 * for all; its bells are counted for the last position. HOST_OF [members] has a number for each member's host; NULL:
 * the hosts are those of LAYOUT, or a single one if it has none. */
void sl_call_costs(const struct sl_collective *call, const struct sl_layout *layout, const int *host_of,
                   struct sl_traffic *sent);

/* The same for engine local. Publishing a call counts as a message without bytes. Each block read from another member's
 * memory is a message; in a long sum, so is a share of a block that is read from or written to each other member. Bells
 * are words that others may wait for. In groups with gates, the last member to arrive rings the gates' bells, and reads
 * all blocks of a short sum; here this is the group's last member. */
void sl_thread_call_costs(const struct sl_collective *call, struct sl_traffic *sent);

SL_END_C
#endif
