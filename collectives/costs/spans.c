/* spans.c - see spans.h. */
#include "collectives/costs/spans.h"

#include "collectives/sums/partial.h"

struct sl_span sl_span_within(struct sl_span a, struct sl_span b) {
    const uint64_t begin = a.begin > b.begin ? a.begin : b.begin, end = a.end < b.end ? a.end : b.end;
    return (struct sl_span){begin, end > begin ? end : begin};
}

static const struct sl_span none = {0, 0};

static bool cuts(const struct sl_collective *call) { return sl_operation_of(call)->cuts; }
static bool joins(const struct sl_collective *call) { return sl_operation_of(call)->joins; }

/* Blocks of the members at positions [FIRST, END). */
static struct sl_span blocks(const struct sl_collective *call, int first, int end) {
    return (struct sl_span){sl_block_bytes(call) * (uint64_t)first, sl_block_bytes(call) * (uint64_t)end};
}
static struct sl_span all(const struct sl_collective *call) {
    return blocks(call, 0, cuts(call) || joins(call) ? call->group->size : 1);
}
static struct sl_span own(const struct sl_collective *call) {
    return blocks(call, call->group->rank, call->group->rank + 1);
}

uint64_t sl_call_bytes(const struct sl_collective *call) { return all(call).end; }
uint64_t sl_member_bytes(const struct sl_collective *call) {
    return sl_span_bytes(joins(call) && !cuts(call) ? own(call) : all(call));
}

int sl_layout_bringing(const struct sl_layout *layout, const struct sl_collective *call, int host, int count) {
    const int root = sl_call_spreads(call) ? sl_layout_host(layout, call->root) : -1;
    int members = 0;
    for (int i = 0; i < count; i++) {
        const int at = (host + i) % layout->hosts;
        members += root < 0 ? sl_layout_members(layout, at) : root == at;
    }
    return members;
}

/* Its data come from the host after HOST at a distance of the steps' bits in SLOT, and go SLOT hosts back from there.
 */
uint64_t sl_swapped_bytes(const struct sl_layout *layout, const struct sl_collective *call, int host, int slot,
                          int step) {
    const int from = (host + (slot & ((1 << step) - 1))) % layout->hosts;
    const int to = (from + layout->hosts - slot) % layout->hosts;
    return sl_block_bytes(call) * (uint64_t)sl_layout_members(layout, from) * (uint64_t)sl_layout_members(layout, to);
}

struct sl_span sl_span_brought(const struct sl_collective *call) {
    if (!sl_call_brings(call)) return none;
    return joins(call) && !cuts(call) ? own(call) : all(call);
}

/* A broadcast's root has its values. */
struct sl_span sl_span_needed(const struct sl_collective *call) {
    if (sl_call_spreads(call) && sl_call_brings(call)) return none;
    return cuts(call) && !joins(call) ? own(call) : all(call);
}

struct sl_span sl_span_passed_on(const struct sl_collective *call, const struct sl_layout *layout, int host) {
    if (sl_call_spreads(call) && host < sl_layout_host(layout, call->root)) return none;
    return joins(call) ? blocks(call, 0, layout->first[host + 1]) : all(call);
}

struct sl_span sl_span_sent_back(const struct sl_collective *call, const struct sl_layout *layout, int host) {
    if (sl_call_spreads(call) && host > sl_layout_host(layout, call->root)) return none;
    if (cuts(call)) return blocks(call, 0, layout->first[host]);
    return joins(call) ? blocks(call, layout->first[host], call->group->size) : all(call);
}

uint64_t sl_chain_rounds(const struct sl_collective *call) {
    return (sl_call_bytes(call) + SL_PIECE_BYTES - 1) / SL_PIECE_BYTES;
}

struct sl_span sl_chain_round(const struct sl_collective *call, uint64_t round) {
    return sl_span_within(all(call), (struct sl_span){SL_PIECE_BYTES * round, SL_PIECE_BYTES * (round + 1)});
}

struct sl_span sl_chain_share(struct sl_span round, int index, int lanes) {
    const uint64_t lines = (sl_span_bytes(round) + SL_CACHE_LINE - 1) / SL_CACHE_LINE, number = (uint64_t)lanes;
    const uint64_t most = (lines + number - 1) / number * SL_CACHE_LINE, begin = round.begin + most * (uint64_t)index;
    return sl_span_within(round, (struct sl_span){begin, begin + most});
}

bool sl_chain_widens(const struct sl_collective *call) {
    const enum sl_reduction reduction = sl_operation_of(call)->reduction;
    if (call->dtype == SL_I32 || (reduction != SL_SUM && reduction != SL_TREE)) return false;
    return reduction == SL_TREE || call->dtype != SL_F32 || call->group->size > SL_SUM_BLOCK;
}

uint64_t sl_chain_message(const struct sl_collective *call, int members, uint64_t bytes) {
    if (!sl_chain_widens(call)) return bytes;
    const int sums = sl_waiting_sums(sl_operation_of(call)->reduction, members);
    return bytes / sl_dtype_size(call->dtype) * sizeof(float) * (uint64_t)sums;
}
