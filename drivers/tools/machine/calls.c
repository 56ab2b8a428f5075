/* calls.c - seconds of engine mpi's calls over several nodes, from the counts of its algorithms. */
#include <math.h>

#include "collectives/costs/spans.h"
#include "drivers/tools/machine/machine.h"

/* Finds the hosts of a group, and fills in FIRST [hosts + 1]. Returns the number of hosts; 0: the members of a host are
 * not neighbours. */
static int find_hosts(int members, const int *node_of, int *first) {
    int hosts = 0;
    bool apart = false;
    for (int i = 0; i < members; i++) {
        apart |= i && node_of[i] < node_of[i - 1]; /* coordinates fill one node after another */
        if (i == 0 || node_of[i] != node_of[i - 1]) first[hosts++] = i;
    }
    first[hosts] = members;
    return apart ? 0 : hosts;
}

static int members_beside(int members, const int *node_of, int position) {
    int beside = 0;
    for (int i = 0; i < members; i++) beside += node_of[i] == node_of[position];
    return beside;
}

/* Returns a member on another node than the one at POSITION, or without one the next member. */
static int member_elsewhere(int members, const int *node_of, int position) {
    for (int i = 0; i < members; i++)
        if (node_of[i] != node_of[position]) return i;
    return (position + 1) % members;
}

size_t sl_machine_elements(enum sl_operation operation, int members, double bytes) {
    const struct sl_operation_row *row = &sl_operations[operation];
    const double elements = bytes / sizeof(float) / (row->cuts || row->joins ? members : 1);
    return operation == SL_BARRIER ? 0 : elements < 1 ? 1 : (size_t)elements;
}

void sl_machine_call_over_nodes(const struct sl_machine *machine, enum sl_operation operation, int members,
                                const int *node_of, double bytes, double *seconds) {
    enum { UNDER_WAY = 8, MOST_ROUNDS = 8 * UNDER_WAY }; /* chained rounds under way; and counted one by one, at most */
    int first[members + 1];
    const struct sl_layout layout = {members, find_hosts(members, node_of, first), first};
    const struct sl_group group = {.size = members, .rank = layout.hosts ? first[layout.hosts / 2] : members / 2};
    const int pair = operation == SL_PPERMUTE ? member_elsewhere(members, node_of, group.rank) : -1;
    struct sl_collective call = {.operation = operation,
                                 .group = &group,
                                 .dtype = SL_F32,
                                 .scale = 1,
                                 .source = pair,
                                 .destination = pair,
                                 .root = group.rank};
    call.count[0] = call.count[1] = 1;
    call.count[2] = sl_machine_elements(operation, members, bytes);
    const enum sl_algorithm algorithm = sl_algorithm_of(&layout, &call);
    const double rounds = (double)sl_chain_rounds(&call);
    double times = 1, waits, uplink = members_beside(members, node_of, group.rank);
    struct sl_traffic sent = {0};
    if (algorithm == SL_ALGORITHM_CHAINED && rounds > MOST_ROUNDS) {
        times = rounds / MOST_ROUNDS;
        call.count[2] = (size_t)((double)call.count[2] / times);
    }
    sl_call_costs(&call, &layout, node_of, &sent);
    waits = (double)sent.messages[SL_WAY_NETWORK];
    if (algorithm == SL_ALGORITHM_CHAINED) {
        waits = ceil(rounds / UNDER_WAY) * 2 * (layout.hosts - 1);
        uplink = sl_layout_lanes(&layout);
    }
    if (algorithm == SL_ALGORITHM_GATHERED) uplink = 1;
    const double network = times * uplink * (double)sent.bytes[SL_WAY_NETWORK];
    const double within = times * (double)(sent.bytes[SL_WAY_MEMORY] + sent.bytes[SL_WAY_HOST]);
    const double pieces = times * (double)(sent.messages[SL_WAY_MEMORY] + sent.messages[SL_WAY_HOST]);
    seconds[SL_LINK_NETWORK] +=
        waits * machine->latency[SL_LINK_NETWORK] + network / machine->bandwidth[SL_LINK_NETWORK];
    seconds[SL_LINK_PACKAGE] +=
        pieces * machine->latency[SL_LINK_PACKAGE] + within / machine->bandwidth[SL_LINK_PACKAGE];
}
