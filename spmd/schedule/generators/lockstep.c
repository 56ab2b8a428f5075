/* lockstep.c - pipelines whose ranks work in step: sequential, grouped, interleaved, rotating,
 * rotating-inputs.
 *
 * Clock functions return the iteration in which a stage sees a microbatch, forward and backward. Source of the first
 * three and of their names: Graphcore's tutorial on pipelining; of rotating: Jaxformer's pipeline. */
#include <stdlib.h>

#include "spmd/schedule/generate.h"

int sl_sequential_forward(const struct sl_schedule *schedule, int stage, int microbatch) {
    return 2 * sl_schedule_stages(schedule) * microbatch + stage;
}

int sl_sequential_backward(const struct sl_schedule *schedule, int stage, int microbatch) {
    return 2 * sl_schedule_stages(schedule) * (microbatch + 1) - 1 - stage;
}

/* All stages do forwards together, then all backwards, and so on. While no stage has backwards yet, or no stage has
 * forwards left, these phases are skipped. Step k: microbatch k - stage forward, k - 2 (stages - 1) + stage
 * backward. */
int sl_grouped_forward(const struct sl_schedule *schedule, int stage, int microbatch) {
    const int step = microbatch + stage;
    return step + sl_larger(0, step - (schedule->ranks - 1));
}

int sl_grouped_backward(const struct sl_schedule *schedule, int stage, int microbatch) {
    const int last = schedule->ranks - 1, step = microbatch + 2 * last - stage;
    return sl_smaller(step + 1, schedule->microbatches + last) + step - last;
}

/* A microbatch enters every other iteration: while a stage does a forward, its neighbours do a backward. */
int sl_interleaved_forward(const struct sl_schedule *schedule, int stage, int microbatch) {
    (void)schedule;
    return stage + 2 * microbatch;
}

int sl_interleaved_backward(const struct sl_schedule *schedule, int stage, int microbatch) {
    return 2 * schedule->ranks - 1 - stage + 2 * microbatch;
}

/* In each step every stage of a rank sees a different microbatch; then all states move on by one stage. */
int sl_rotating_forward(const struct sl_schedule *schedule, int stage, int microbatch) {
    (void)schedule;
    return microbatch + stage;
}

int sl_rotating_backward(const struct sl_schedule *schedule, int stage, int microbatch) {
    const int steps = sl_schedule_stages(schedule) + schedule->microbatches - 1;
    return 2 * steps - 1 - (microbatch + stage);
}

/* Within a step, the first loop's action comes first. */
static int by_time(const void *left, const void *right) {
    const struct sl_action *a = left, *b = right;
    return a->time == b->time ? a->loop - b->loop : a->time - b->time;
}

static int append(struct sl_schedule *schedule, sl_lockstep_clock *when, enum sl_action_kind kind) {
    for (int stage = 0; stage < sl_schedule_stages(schedule); stage++) {
        struct sl_rank_schedule *rank = &schedule->rank[sl_schedule_rank_of(schedule, stage)];
        for (int i = 0; i < schedule->microbatches; i++) {
            SL_TRY(sl_schedule_compute(schedule, kind, stage, i, false));
            rank->action[rank->count - 1].time = when(schedule, stage, i);
        }
    }
    return SL_OK;
}

int sl_generate_lockstep(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, struct sl_error *error) {
    const struct sl_lockstep_variant *variant = &kind->variant.lockstep;
    (void)error;
    SL_TRY(append(schedule, variant->forward, SL_FORWARD));
    if (variant->backward) SL_TRY(append(schedule, variant->backward, SL_BACKWARD));
    for (int r = 0; r < schedule->ranks; r++)
        qsort(schedule->rank[r].action, (size_t)schedule->rank[r].count, sizeof *schedule->rank[r].action, by_time);
    return SL_OK;
}
