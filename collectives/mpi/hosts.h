/* hosts.h - calls of a group with members on several hosts, without a message from each member to each other.
 *
 * If the members of each host are neighbours in the group, hosts follow one another as members do. Each host's members
 * have mailboxes in its memory (mailbox_internal.h); the first member is the host's leader. With n members on h hosts:
 *
 * - Barriers, and sums, maxima, psum_scatter, all_gather, all_to_all and broadcasts of up to 4 KB a member (and of
 *   results that fit into a mailbox), are gathered (hosts.c). Members write their values into their mailboxes. A
 *   leader collects those of its host and exchanges with other leaders: in step s it sends the values of 2^s hosts,
 *   its own and the following ones, to the leader 2^s hosts before it, and receives those of the next 2^s hosts. After
 *   log2(h) steps, rounded up, it has the values of all members. It combines them in the order of the members, and its
 *   host's members copy their results from its mailbox. So a leader sends log2(h) messages, other members none; a
 *   host's uplink carries n - (members of the host) members' values. In a broadcast only the root has values, leaders
 *   wait for no other member, and messages without values are not sent: they make a tree. In an all_to_all leaders
 *   exchange only the blocks that are for other hosts, in as many steps (swap.c).
 *
 * - The same operations over more data, except all_to_all, are chained (chain.c), if some host has several members;
 *   broadcasts among more than two members always. They go in rounds of 64 KB of the values; if the call has blocks,
 *   the values are all members' blocks, one after another. The first members of each host are its lanes, and each lane
 *   has a share of every round. All hosts have the same number of lanes: as many as the host with the fewest members
 *   has members, and at most 16. The lanes of the first host add the values of their host's members, in order, and
 *   send the sums to the same lanes of the next host. These continue the sums, and so on to the last host. Its lanes
 *   scale the sums and send them back, from host to host. Each lane sends the results on and copies them into its
 *   mailbox, where its host's members read them. Up to 8 rounds are under way. So a host's uplink carries each byte
 *   once in each direction. The additions are those of one sum in member order, so bits do not depend on hosts.
 *   Partial sums of narrower types are f32, and are rounded once, by the last host. In the order of a tree, or of more
 *   than 64 members, there may be several partial sums (collectives/sums/partial.h): all are sent on. A psum_scatter
 *   sends back only the blocks of the hosts before the sender. An all_gather sends on the blocks of the sender and of
 *   the hosts before it, and sends back the blocks of the sender and of the hosts behind it. A broadcast is sent on by
 *   its root's host and the hosts behind it, and sent back by this host and those before it.
 *
 * - All other calls, and all calls of other groups, exchange messages between all members (exchange.c).
 *
 * Each pair of leaders or lanes that exchange messages also exchanges a signature, once a call. Members of one host
 * compare words in their mailboxes. */
#ifndef SL_COLLECTIVES_MPI_HOSTS_H
#define SL_COLLECTIVES_MPI_HOSTS_H

#include "collectives/costs/costs.h"
#include "collectives/mpi/process/shared.h"
#include "collectives/mpi/wire.h"

SL_BEGIN_C

enum {
    SL_MPI_UNDER_WAY = 8, /* rounds of a chained call between their sum and its return */
};

struct sl_mpi_hosts {
    int count, mine; /* of the group's hosts; this member's */
    int lanes;
    int first[]; /* [count + 1]: position of the first member on each host */
};

/* Makes FOUND the hosts of GROUP, which the caller frees; NULL if the members of a host are not neighbours. Returns
 * false without memory: the run must end then, because this member would take another route than the others. */
bool sl_mpi_find_hosts(const struct sl_group *group, struct sl_mpi_hosts **found);

/* Ways of a call's data through the engine. */
struct sl_mpi_route {
    void (*begin)(struct sl_mpi_call *c);
    bool (*go)(struct sl_mpi_call *c);           /* moves the call on as far as possible; returns whether it is over */
    int (*laggard)(const struct sl_mpi_call *c); /* position of a member that has not done its part; -1: see requests */
    /* Whether messages of MPI go between this member and the one at position PEER; NULL in mailboxes. */
    bool (*receives)(const struct sl_mpi_call *c, int peer), (*sends)(const struct sl_mpi_call *c, int peer);
    bool (*polls)(const struct sl_mpi_call *c);  /* whether any do */
    size_t (*room)(const struct sl_mpi_call *c); /* bytes of its buffer; NULL: see set_aside */
    /* The member of the request at INDEX in c->receive (RECEIVES), or in c->send. */
    int (*peer)(const struct sl_mpi_call *c, int index, bool receives);
};
extern const struct sl_mpi_route sl_mpi_by_messages, sl_mpi_by_mailboxes, sl_mpi_gathered, sl_mpi_chained;

/* The route of a call over the group of COMMUNICATOR: the same for all members. */
const struct sl_mpi_route *sl_mpi_route_of(const struct sl_mpi_communicator *communicator,
                                           const struct sl_collective *call);

/* The layout of a group with hosts. */
static inline struct sl_layout sl_mpi_layout_of(const struct sl_mpi_communicator *communicator) {
    const struct sl_mpi_hosts *hosts = communicator->hosts;
    return (struct sl_layout){communicator->group.size, hosts->count, hosts->first};
}

/* Positions of this host's members. */
struct sl_positions sl_mpi_housemates(const struct sl_mpi_call *c);
/* The first of the housemates that has not raised a word to TARGET, -1: all have. */
int sl_mpi_find_unwritten(const struct sl_mpi_call *c, uint32_t target);
int sl_mpi_find_unread(const struct sl_mpi_call *c, uint32_t target);
/* Rings for all housemates that want room, which need those of COMPLETE members: see sl_mpi_ring_if_complete. */
void sl_mpi_ring_housemates_for_room(const struct sl_mpi_call *c, bool complete);

/* Counts BYTES that the call sends to the member at PEER in a message, or that it leaves in the mailbox. */
static inline void sl_mpi_count_message(const struct sl_mpi_call *c, int peer, size_t bytes) {
    const bool here = sl_mpi_host_of(sl_group_member(c->call.group, peer)) == sl_mpi_host_of(c->run->spmd.coordinate);
    struct sl_traffic *sent = c->run->spmd.sent;
    if (sent) sl_traffic_add(&sent[c->call.operation], here ? SL_WAY_HOST : SL_WAY_NETWORK, 1, bytes);
}
static inline void sl_mpi_count_piece(const struct sl_mpi_call *c, size_t bytes) {
    struct sl_traffic *sent = c->run->spmd.sent;
    if (sent) sl_traffic_add(&sent[c->call.operation], SL_WAY_MEMORY, 1, bytes);
}
/* Rings for the member at PEER, which is another one of this host. */
static inline void sl_mpi_ring_at(const struct sl_mpi_call *c, int peer) {
    struct sl_traffic *sent = c->run->spmd.sent;
    if (sent) sent[c->call.operation].bells++;
    sl_mpi_ring(sl_group_member(c->call.group, peer));
}
/* Rings for the other members at WOKEN, which wait for all at WHOLE: only if these are COMPLETE. So each sleeper is
 * woken once, and not by each of WHOLE. The caller raises its word, then reads the others' (SC), so the last one finds
 * all complete. Any member may be last: the bells are counted for the one at the last position. */
static inline void sl_mpi_ring_if_complete(const struct sl_mpi_call *c, struct sl_positions whole,
                                           struct sl_positions woken, bool complete) {
    struct sl_traffic *sent = c->run->spmd.sent;
    const int me = c->call.group->rank;
    if (sent && me == whole.end - 1)
        sent[c->call.operation].bells += (uint64_t)(woken.end - woken.begin - sl_has_position(woken, me));
    for (int peer = woken.begin; peer < woken.end && complete; peer++)
        if (peer != me) sl_mpi_ring(sl_group_member(c->call.group, peer));
}

/* Messages of a call (exchange.c). */
void sl_mpi_send(struct sl_mpi_call *c, enum sl_mpi_kind kind, int peer, const void *data, size_t count,
                 MPI_Request *request);
void sl_mpi_receive(struct sl_mpi_call *c, enum sl_mpi_kind kind, int peer, void *data, size_t count,
                    MPI_Request *request);
/* Whether COUNT requests have ended. Reports errors. */
bool sl_mpi_have_ended(struct sl_mpi_call *c, int count, MPI_Request *request);

SL_END_C
#endif
