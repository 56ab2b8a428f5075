/* costs.h - the algorithms of engines local and mpi as numbers: how many messages, bytes and bells of a call a member
 * sends, and which algorithm of engine mpi the call takes. That engine asks which; docs/engines.md and
 * collectives/mpi/hosts.h describe them. */
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

/* Members of each host that pass long sums on. */
int sl_layout_lanes(const struct sl_layout *layout);

/* Adds the traffic that the call's own member sends to SENT. HOST_OF [members] has a number for each member's host;
 * NULL: they are those of the layout, or one if it has none. */
void sl_call_costs(const struct sl_collective *call, const struct sl_layout *layout, const int *host_of,
                   struct sl_traffic *sent);

/* The same for engine local. A member publishes its call, a message without bytes; it reads blocks from others' memory,
 * and in a long sum reads a share of each block, and writes it to each: these are messages, too. Bells are words that
 * others may wait for. In groups with gates, the last member to arrive has the gates' bells and the reads of a short
 * sum: it is taken to be the group's last. */
void sl_thread_call_costs(const struct sl_collective *call, struct sl_traffic *sent);

SL_END_C
#endif
