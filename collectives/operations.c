/* operations.c - the table of collective operations. */
#include "collectives/operations.h"

const struct sl_operation_row sl_operations[SL_OPERATIONS] = {
    [SL_BARRIER] = {.name = "barrier"},
    [SL_PPERMUTE] = {.name = "ppermute", .from = SL_WITH_PAIRED, .to = SL_WITH_PAIRED, .zeros = true},
    [SL_PSUM] = {.name = "psum", .reduction = SL_SUM, .in_place = true},
    [SL_PSUM_TREE] = {.name = "psum_tree", .reduction = SL_TREE, .in_place = true},
    [SL_PMAX] = {.name = "pmax", .reduction = SL_MAXIMUM, .in_place = true},
    [SL_PSUM_SCATTER] = {.name = "psum_scatter", .reduction = SL_SUM, .cuts = true, .in_place = true},
    [SL_SCATTER_TREE] = {.name = "psum_scatter_tree", .reduction = SL_TREE, .cuts = true, .in_place = true},
    [SL_ALL_GATHER] = {.name = "all_gather", .joins = true, .in_place = true},
    [SL_ALL_TO_ALL] = {.name = "all_to_all", .cuts = true, .joins = true},
    [SL_BROADCAST] = {.name = "broadcast", .from = SL_WITH_ROOT, .to = SL_AT_ROOT_WITH_ALL, .in_place = true},
    [SL_GATHER] = {.name = "gather", .from = SL_AT_ROOT_WITH_ALL, .to = SL_WITH_ROOT, .joins = true, .in_place = true},
};

/* ---- members concerned by a call ---- */

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

/* ---- layout of its blocks ---- */

bool sl_block_is_solid(const struct sl_collective *call, const struct sl_view *view) {
    const size_t *count = call->count;
    return (count[1] == 1 || view->stride[1] == count[2]) && (count[0] == 1 || view->stride[0] == count[1] * count[2]);
}

struct sl_view sl_packed_blocks(const struct sl_collective *call) {
    return (struct sl_view){.peer = sl_block_elements(call),
                            .stride = {call->count[1] * call->count[2], call->count[2]}};
}

struct sl_matrices sl_block_matrices(const struct sl_collective *call, const struct sl_view *in,
                                     const struct sl_view *out) {
    const size_t outer = call->count[0], inner = call->count[1], run = call->count[2];
    struct sl_matrices m = {1, inner, run, {0, in->stride[1]}, {0, out->stride[1]}};
    if (outer == 1) {
        /* as it is */
    } else if (inner == 1 || (in->stride[1] == run && out->stride[1] == run)) {
        m = (struct sl_matrices){1, outer, inner * run, {0, in->stride[0]}, {0, out->stride[0]}};
    } else if (in->stride[0] == inner * in->stride[1] && out->stride[0] == inner * out->stride[1]) {
        m.rows = outer * inner;
    } else {
        const int rows = outer > inner ? 0 : 1;
        m.count = call->count[!rows], m.rows = call->count[rows];
        m.in[0] = in->stride[!rows], m.in[1] = in->stride[rows];
        m.out[0] = out->stride[!rows], m.out[1] = out->stride[rows];
    }
    if (m.count == 1 && m.in[1] == m.columns && m.out[1] == m.columns) m.columns *= m.rows, m.rows = 1;
    return m;
}
