/* zero_bubble.c - zbv: two stages a rank, placed on a V, and weight gradients where bubbles would be.
 *
 * The last stage is on the first rank, so gradients come back early. Made for forward, input gradient and weight
 * gradient of the same duration: then a rank that has begun never waits. Microbatches that are too few to fill the
 * pipeline are scheduled as if there were enough, and the ones that do not exist are left out. */
#include "spmd/schedule/generate.h"

struct walk {
    struct sl_schedule *schedule;
    int rank;
    int next[SL_ACTION_KINDS][2]; /* microbatch of each kind of action on either loop */
};

static int step(struct walk *walk, enum sl_action_kind kind, int loop) {
    const int microbatch = walk->next[kind][loop]++, stage = sl_schedule_stage(walk->schedule, walk->rank, loop);
    if (microbatch >= walk->schedule->microbatches) return SL_OK;
    return sl_schedule_compute(walk->schedule, kind, stage, microbatch, false);
}

static int both_gradients(struct walk *walk, int loop) {
    SL_TRY(step(walk, SL_INPUT_GRADIENT, loop));
    return step(walk, SL_WEIGHT_GRADIENT, loop);
}

static int warm_up(struct walk *walk) {
    const int hops = walk->schedule->ranks - 1 - walk->rank;
    for (int n = 0; n < 2 * hops + 1; n++) SL_TRY(step(walk, SL_FORWARD, 0));
    for (int n = 0; n < walk->rank; n++) {
        SL_TRY(step(walk, SL_FORWARD, 1));
        SL_TRY(step(walk, SL_FORWARD, 0));
    }
    for (int n = 0; n < hops + 1; n++) {
        SL_TRY(step(walk, SL_FORWARD, 1));
        SL_TRY(both_gradients(walk, 1));
    }
    return SL_OK;
}

static int take_turns(struct walk *walk, int microbatches) {
    const int *forwards = walk->next[SL_FORWARD];
    while (forwards[1] < microbatches) {
        if (forwards[0] < microbatches) SL_TRY(step(walk, SL_FORWARD, 0));
        SL_TRY(both_gradients(walk, 0));
        SL_TRY(step(walk, SL_FORWARD, 1));
        SL_TRY(both_gradients(walk, 1));
    }
    return SL_OK;
}

/* Other ranks wait for input gradients; weight gradients come after. */
static int cool_down(struct walk *walk, int microbatches) {
    for (int n = 0; n < walk->rank; n++) {
        SL_TRY(step(walk, SL_INPUT_GRADIENT, 0));
        SL_TRY(step(walk, SL_INPUT_GRADIENT, 1));
    }
    for (int n = walk->rank; n < walk->schedule->ranks; n++) SL_TRY(both_gradients(walk, 0));
    for (int loop = 1; loop >= 0; loop--) {
        while (walk->next[SL_WEIGHT_GRADIENT][loop] < microbatches) SL_TRY(step(walk, SL_WEIGHT_GRADIENT, loop));
    }
    return SL_OK;
}

int sl_generate_zero_bubble(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, struct sl_error *error) {
    (void)kind;
    (void)error;
    const int enough = 2 * schedule->ranks - 1;
    const int microbatches = schedule->microbatches > enough ? schedule->microbatches : enough;
    for (int r = 0; r < schedule->ranks; r++) {
        struct walk walk = {.schedule = schedule, .rank = r};
        SL_TRY(warm_up(&walk));
        SL_TRY(take_turns(&walk, microbatches));
        SL_TRY(cool_down(&walk, microbatches));
    }
    return SL_OK;
}
