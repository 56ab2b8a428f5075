/* operations.c - the table of collective operations. */
#include "collectives/operations.h"

const struct sl_operation_row sl_operations[SL_OPERATIONS] = {
    [SL_BARRIER] = {.name = "barrier"},
    [SL_PPERMUTE] = {.name = "ppermute", .from = SL_WITH_PAIRED, .to = SL_WITH_PAIRED, .zeros = true},
    [SL_PSUM] = {.name = "psum", .reduction = SL_SUM, .in_place = true},
    [SL_PMAX] = {.name = "pmax", .reduction = SL_MAXIMUM, .in_place = true},
    [SL_PSUM_SCATTER] = {.name = "psum_scatter", .reduction = SL_SUM, .cuts = true, .in_place = true},
    [SL_ALL_GATHER] = {.name = "all_gather", .joins = true, .in_place = true},
    [SL_ALL_TO_ALL] = {.name = "all_to_all", .cuts = true, .joins = true},
    [SL_BROADCAST] = {.name = "broadcast", .from = SL_WITH_ROOT, .to = SL_AT_ROOT_WITH_ALL, .in_place = true},
    [SL_GATHER] = {.name = "gather", .from = SL_AT_ROOT_WITH_ALL, .to = SL_WITH_ROOT, .joins = true, .in_place = true},
};

/* ---- whom a call concerns ---- */

static struct sl_positions one(int position) {
    return (struct sl_positions){position < 0 ? 0 : position, position + 1};
}

static struct sl_positions partners(const struct sl_collective *call, enum sl_partners partners, int paired) {
    const struct sl_positions all = {0, call->group->size}, none = {0, 0};
    switch (partners) {
    case SL_WITH_ALL:
        return all;
    case SL_WITH_ROOT:
        return one(call->root);
    case SL_AT_ROOT_WITH_ALL:
        return call->root == call->group->rank ? all : none;
    case SL_WITH_PAIRED:
        return one(paired);
    }
    return none;
}

struct sl_positions sl_call_sources(const struct sl_collective *call) {
    return partners(call, sl_operation_of(call)->from, call->source);
}

struct sl_positions sl_call_destinations(const struct sl_collective *call) {
    return partners(call, sl_operation_of(call)->to, call->destination);
}

static bool is_any(struct sl_positions positions) { return positions.begin < positions.end; }

bool sl_call_reads(const struct sl_collective *call) { return is_any(sl_call_destinations(call)); }

bool sl_call_writes(const struct sl_collective *call) {
    return sl_operation_of(call)->zeros || is_any(sl_call_sources(call));
}

/* ---- how its blocks lie ---- */

bool sl_block_is_solid(const struct sl_collective *call, const struct sl_view *view) {
    const size_t *count = call->count;
    return (count[1] == 1 || view->stride[1] == count[2]) && (count[0] == 1 || view->stride[0] == count[1] * count[2]);
}

struct sl_view sl_packed_blocks(const struct sl_collective *call) {
    return (struct sl_view){.peer = sl_block_elements(call),
                            .stride = {call->count[1] * call->count[2], call->count[2]}};
}
