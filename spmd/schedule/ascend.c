/* ascend.c - in tables with all forwards first, puts the backwards into the order of the forwards.
 *
 * A backward pass that runs the iterations of the forward pass in reverse ends with the first microbatch. But when it
 * begins, all forwards are done, so no microbatch needs to come before another: backwards may exchange microbatches if
 * all ranks do so in the same way. */
#include "spmd/schedule/schedule.h"

static bool is_backward(enum sl_action_kind kind) { return kind != SL_FORWARD; }

/* Whether all forwards of RANK come before its backwards, and the backwards go from the last microbatch to the
 * first. */
static bool descends(const struct sl_schedule *schedule, const struct sl_rank_schedule *rank) {
    int i = 0;
    while (i < rank->count && !is_backward(rank->action[i].kind)) i++;
    if (i == rank->count || rank->action[i].microbatch != schedule->microbatches - 1) return false;
    while (i < rank->count && is_backward(rank->action[i].kind)) i++;
    return i == rank->count && rank->action[i - 1].microbatch == 0;
}

static void reverse(int last, struct sl_action *action) {
    if (is_backward(action->kind)) action->microbatch = (uint16_t)(last - action->microbatch);
}

void sl_schedule_ascend(struct sl_schedule *schedule) {
    if (schedule->lowered || schedule->run > 1 || schedule->copies > 1) return; /* a copy has microbatches of its own */
    for (int r = 0; r < schedule->ranks; r++)
        if (!descends(schedule, &schedule->rank[r])) return;
    schedule->ascends = true;
    for (int r = 0; r < schedule->ranks; r++)
        for (int i = 0; i < schedule->rank[r].count; i++)
            reverse(schedule->microbatches - 1, &schedule->rank[r].action[i]);
}
