/* threads.c - counts of engine local: see costs.h. */
#include "collectives/costs/spans.h"
#include "spmd/device/device.h"

static bool has_gates(const struct sl_collective *call) {
    return call->group->size > SL_FEW_THREADS && sl_call_meets(call);
}

/* Adds the blocks that the member reads from others; or, in a long sum, its share of each block, which it reads and
 * writes. */
static void add_moves(const struct sl_collective *call, struct sl_traffic *sent) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    const struct sl_positions from = sl_call_sources(call);
    const int me = call->group->rank, size = call->group->size;
    const bool shares = operation->reduction != SL_NO_REDUCTION && !operation->cuts;
    const struct sl_span all = {0, sl_block_bytes(call)};
    const uint64_t bytes = shares ? sl_span_bytes(sl_chain_share(all, me, size)) : all.end;
    const uint64_t others = (uint64_t)(from.end - from.begin - sl_has_position(from, me)), moves = shares ? 2 : 1;
    if (bytes) sl_traffic_add(sent, SL_WAY_MEMORY, moves * others, moves * others * bytes);
}

void sl_thread_call_costs(const struct sl_collective *call, struct sl_traffic *sent) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    const uint64_t bytes = sl_block_bytes(call), others = (uint64_t)call->group->size - 1;
    const bool gates = has_gates(call), last = call->group->rank == call->group->size - 1;
    const bool sums = operation->reduction != SL_NO_REDUCTION && !operation->cuts;
    const bool host = !sl_device.reaches(call->input) && !sl_device.reaches(call->output);
    const bool by_last = gates && sums && host && bytes && bytes <= SL_SHORT_CALL;
    sl_traffic_add(sent, SL_WAY_MEMORY, 1, 0);
    sent->bells += 2; /* the member has arrived; it has finished */
    if (gates && last) sent->bells += by_last || call->operation == SL_BARRIER ? 1 : 2;
    if (!by_last) {
        add_moves(call, sent);
        return;
    }
    sl_traffic_add(sent, SL_WAY_MEMORY, 1, bytes);
    if (last) sl_traffic_add(sent, SL_WAY_MEMORY, others, others * bytes);
}
