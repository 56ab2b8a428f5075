/* looped.c - all forwards, then all backwards: gpipe, looped-bfs, looped-dfs. */
#include "spmd/schedule/generate.h"

int sl_schedule_iterations(const struct sl_schedule *schedule) {
    const int m = schedule->microbatches, s = schedule->ranks;
    return schedule->loops * sl_larger(m, s) + sl_smaller(m, s) - 1;
}

int sl_schedule_iteration(const struct sl_schedule *schedule, int rank, int loop, int microbatch) {
    return microbatch + rank + loop * sl_larger(schedule->microbatches, schedule->ranks);
}

/* Appends the forward pass's clock run in reverse: the forwards began at iteration 0 and ended before END / 2. */
static int append_backwards(struct sl_rank_schedule *rank, int end) {
    for (int n = rank->count - 1; n >= 0; n--) {
        struct sl_action backward = rank->action[n];
        backward.kind = SL_BACKWARD;
        backward.time = end - backward.time;
        if (!sl_schedule_append(rank, &backward)) return SL_FAILED;
    }
    return SL_OK;
}

/* Appends a forward. The first rank reads a row of the batch or of the stage-input buffer. */
static int append_forward(struct sl_schedule *schedule, int r, int time, int microbatch, int loop) {
    struct sl_rank_schedule *rank = &schedule->rank[r];
    SL_TRY(sl_schedule_compute(schedule, SL_FORWARD, sl_schedule_stage(schedule, r, loop), microbatch, false));
    rank->action[rank->count - 1].time = time;
    if (r == 0) rank->action[rank->count - 1].has_input = true;
    return SL_OK;
}

/* Breadth first: all microbatches of a loop, then the next loop. With one loop this is GPipe. */
static int breadth_first(struct sl_schedule *schedule) {
    const int end = 2 * sl_schedule_iterations(schedule) - 1;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int l = 0; l < schedule->loops; l++) {
            for (int i = 0; i < schedule->microbatches; i++)
                SL_TRY(append_forward(schedule, r, sl_schedule_iteration(schedule, r, l, i), i, l));
        }
        SL_TRY(append_backwards(&schedule->rank[r], end));
    }
    return SL_OK;
}

/* Depth first: groups of as many microbatches as ranks go through all loops, one group after another; microbatch i of
 * loop l is on rank r in iteration i % ranks + r + (loops * (i / ranks) + l) * ranks. States come back to the first
 * rank just in time. */
static int depth_first(struct sl_schedule *schedule) {
    const int ranks = schedule->ranks, loops = schedule->loops, rounds = (schedule->microbatches + ranks - 1) / ranks;
    const int last = schedule->microbatches - 1;
    const int end = 2 * (last % ranks + ranks - 1 + (loops * rounds - 1) * ranks) + 1;
    for (int r = 0; r < ranks; r++) {
        for (int round = 0; round < rounds; round++) {
            for (int l = 0; l < loops; l++) {
                for (int i = round * ranks; i < (round + 1) * ranks && i <= last; i++) {
                    const int time = i % ranks + r + (loops * round + l) * ranks;
                    SL_TRY(sl_schedule_compute(schedule, SL_FORWARD, sl_schedule_stage(schedule, r, l), i, false));
                    schedule->rank[r].action[schedule->rank[r].count - 1].time = time;
                }
            }
        }
        SL_TRY(append_backwards(&schedule->rank[r], end));
    }
    return SL_OK;
}

int sl_generate_looped(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, struct sl_error *error) {
    (void)error;
    return kind->variant.looped.depth_first ? depth_first(schedule) : breadth_first(schedule);
}
