/* calls_section.c - messages, bells and bytes of engine mpi's calls on nodes, as the engine's own table counts them
 * (collectives/costs/costs.h). */
#include "collectives/costs/spans.h"
#include "drivers/tools/machine/machine.h"
#include "drivers/tools/plan/plan.h"

enum { MOST_MEMBERS = 1024 };

static const struct call {
    enum sl_operation operation;
    double bytes; /* the larger of a member's input and output */
} calls[] = {{SL_BARRIER, 0},           {SL_PSUM, 1024},      {SL_PSUM, 16 << 20},      {SL_PSUM_SCATTER, 16 << 20},
             {SL_ALL_GATHER, 16 << 20}, {SL_BROADCAST, 1024}, {SL_BROADCAST, 16 << 20}, {SL_ALL_TO_ALL, 4096}};
enum { CALLS = sizeof calls / sizeof *calls };

struct counts {
    uint64_t messages, pieces, bells; /* of the members that have most: between nodes; within a node; and bells */
    uint64_t sent;                    /* bytes, by the node that sends most to others */
};

static void raise(uint64_t *most, uint64_t value) { *most = value > *most ? value : *most; }

static struct counts count(const struct call *call, int members, int node) {
    int first[MOST_MEMBERS + 1] = {0}, node_of[MOST_MEMBERS];
    struct sl_layout layout = {.members = members, .first = first};
    struct sl_group group = {.size = members};
    struct sl_collective its = {.operation = call->operation, .group = &group, .dtype = SL_F32, .scale = 1};
    struct counts counts = {0};
    uint64_t sent = 0;
    its.count[0] = its.count[1] = 1;
    its.count[2] = sl_machine_elements(call->operation, members, call->bytes);
    for (int i = 0; i < members; i++) node_of[i] = i / node;
    while (first[layout.hosts] < members) {
        const int next = first[layout.hosts++] + node;
        first[layout.hosts] = next < members ? next : members;
    }
    for (group.rank = 0; group.rank < members; group.rank++) {
        struct sl_traffic its_own = {0};
        sl_call_costs(&its, &layout, node_of, &its_own);
        if (group.rank == first[node_of[group.rank]]) sent = 0;
        sent += its_own.bytes[SL_WAY_NETWORK];
        raise(&counts.messages, its_own.messages[SL_WAY_NETWORK]);
        raise(&counts.pieces, its_own.messages[SL_WAY_MEMORY] + its_own.messages[SL_WAY_HOST]);
        raise(&counts.bells, its_own.bells);
        raise(&counts.sent, sent);
    }
    return counts;
}

static const struct plan_field field[] = {{"call", "call", -12, PLAN_FIELD_TEXT},
                                          {"bytes", "of", 9, PLAN_FIELD_BYTES},
                                          {"coordinates", "coordinates", 11, PLAN_FIELD_COUNT},
                                          {"messages", "messages", 8, PLAN_FIELD_COUNT},
                                          {"pieces", "within", 8, PLAN_FIELD_COUNT},
                                          {"bells", "bells", 8, PLAN_FIELD_COUNT},
                                          {"node_bytes", "a node sends", 12, PLAN_FIELD_BYTES},
                                          {0}};

int plan_print_calls(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    static const int members[] = {8, 64, 256, MOST_MEMBERS};
    plan_rows_begin(rows, "calls",
                    "Calls of engine mpi: the busiest member's messages between nodes and within one, and its bells;\n"
                    "and the bytes that the busiest node sends to others.",
                    field);
    for (int i = 0; i < CALLS * 4; i++) {
        const struct call *call = &calls[i / 4];
        const struct counts counts = count(call, members[i % 4], job->node);
        const union plan_value value[] = {{.text = sl_operations[call->operation].name},
                                          {.number = call->bytes},
                                          {.number = members[i % 4]},
                                          {.number = (double)counts.messages},
                                          {.number = (double)counts.pieces},
                                          {.number = (double)counts.bells},
                                          {.number = (double)counts.sent}};
        SL_TRY(plan_rows_add(rows, value, error));
    }
    return SL_OK;
}
