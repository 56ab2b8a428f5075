/* 1f1b.c - one forward, one backward: 1f1b, pipedream-flush, interleaved-1f1b, interleaved-zb.
 *
 * A rank begins with forwards until gradients come back (the warm-up); then forwards and backwards alternate; the
 * remaining backwards come last. Microbatches go through the loops in rounds: a round's microbatches pass the first
 * loop, then the second one, and so on; then the next round begins. Backwards pass the loops from the last to the
 * first. interleaved-zb computes weight gradients separately, on rank r r backwards late, so that they fill the
 * bubbles.
 *
 * A longer warm-up covers more delay between ranks and holds more microbatches. 1f1b is interleaved-1f1b with one loop,
 * as in PyTorch. pipedream-flush holds the fewest microbatches: at most the number of ranks from its own to the last.
 * The weight gradients of interleaved-zb cover the delay its warm-up does not. */
#include "spmd/schedule/generate.h"

/* Appends the N-th forward or backward of rank R, with ROUND microbatches per round. */
static int append(struct sl_schedule *schedule, int r, enum sl_action_kind kind, int n, int round) {
    const int cycle = round * schedule->loops, step = n % cycle;
    const int loop = kind == SL_FORWARD ? step / round : schedule->loops - 1 - step / round;
    return sl_schedule_compute(schedule, kind, sl_schedule_stage(schedule, r, loop), n / cycle * round + step % round,
                               false);
}

static int generate_rank(struct sl_schedule *schedule, const struct sl_1f1b_variant *variant, int r, int round) {
    const int all = schedule->loops * schedule->microbatches, hops = schedule->ranks - 1 - r;
    const int warmup = sl_smaller((schedule->loops - 1) * round + variant->per_hop * hops, all);
    const int late = sl_smaller(r, all);
    for (int n = 0; n < warmup; n++) SL_TRY(append(schedule, r, SL_FORWARD, n, round));
    for (int n = 0; n < all; n++) {
        if (warmup + n < all) SL_TRY(append(schedule, r, SL_FORWARD, warmup + n, round));
        SL_TRY(append(schedule, r, variant->split ? SL_INPUT_GRADIENT : SL_BACKWARD, n, round));
        if (variant->split && n >= late) SL_TRY(append(schedule, r, SL_WEIGHT_GRADIENT, n - late, round));
    }
    for (int n = all - late; variant->split && n < all; n++) SL_TRY(append(schedule, r, SL_WEIGHT_GRADIENT, n, round));
    return SL_OK;
}

int sl_generate_1f1b(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, struct sl_error *error) {
    const struct sl_1f1b_variant *variant = &kind->variant.one_f_one_b;
    const int microbatches = schedule->microbatches;
    const int rounds = variant->in_rounds && microbatches > schedule->ranks ? microbatches / schedule->ranks : 1;
    if (microbatches % rounds)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d microbatches on %d stages: must be a multiple of the number of rounds, "
                            "which is microbatches / stages rounded down: %d",
                            schedule->name, microbatches, schedule->ranks, rounds);
    for (int r = 0; r < schedule->ranks; r++) SL_TRY(generate_rank(schedule, variant, r, microbatches / rounds));
    return SL_OK;
}
