/* dualpipe.c - dualpipev: two stages a rank, placed on a V; forwards and backwards share cells.
 *
 * The half of DualPipe that is left when its two mirrored pipelines become one V: in the main part the forward of one
 * loop is paired with the backward of the other, so that the one's communication can hide behind the other's products.
 * Source: DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024) and the code published with it. */
#include "spmd/schedule/generate.h"

struct walk {
    struct sl_schedule *schedule;
    int rank;
    int forward[2], backward[2]; /* next microbatch on either loop */
    int pending;                 /* all input gradients among the rank's actions before this one have their W */
};

static int forward(struct walk *walk, int loop) {
    return sl_schedule_compute(walk->schedule, SL_FORWARD, sl_schedule_stage(walk->schedule, walk->rank, loop),
                               walk->forward[loop]++, false);
}

/* A backward, or only its input gradient. */
static int backward(struct walk *walk, enum sl_action_kind kind, int loop, bool paired) {
    return sl_schedule_compute(walk->schedule, kind, sl_schedule_stage(walk->schedule, walk->rank, loop),
                               walk->backward[loop]++, paired);
}

static int forward_with_backward(struct walk *walk, int loop) {
    SL_TRY(forward(walk, loop));
    return backward(walk, SL_BACKWARD, 1 - loop, true);
}

/* The weight gradient of the oldest input gradient that is still without: there always is one. */
static int weight_gradient(struct walk *walk) {
    const struct sl_action *action = walk->schedule->rank[walk->rank].action;
    while (action[walk->pending].kind != SL_INPUT_GRADIENT) walk->pending++;
    action += walk->pending++;
    return sl_schedule_compute(walk->schedule, SL_WEIGHT_GRADIENT,
                               sl_schedule_stage(walk->schedule, walk->rank, action->loop), action->microbatch, false);
}

static int fill(struct walk *walk) {
    const int hops = walk->schedule->ranks - 1 - walk->rank;
    for (int n = 0; n < 2 * hops; n++) SL_TRY(forward(walk, 0));
    for (int n = 0; n <= walk->rank; n++) {
        SL_TRY(forward(walk, 0));
        SL_TRY(forward(walk, 1));
    }
    for (int n = 0; n < hops; n++) {
        SL_TRY(backward(walk, SL_INPUT_GRADIENT, 1, false));
        SL_TRY(weight_gradient(walk));
        SL_TRY(forward(walk, 1));
    }
    return SL_OK;
}

/* The last rank's first forward is not paired: it need not wait for the first gradient with the backward. */
static int main_part(struct walk *walk) {
    const int ranks = walk->schedule->ranks, hops = ranks - 1 - walk->rank;
    for (int n = 0; n < walk->schedule->microbatches - ranks - hops; n++) {
        if (n == 0 && hops == 0) {
            SL_TRY(forward(walk, 0));
            SL_TRY(backward(walk, SL_BACKWARD, 1, false));
        } else {
            SL_TRY(forward_with_backward(walk, 0));
        }
        SL_TRY(forward_with_backward(walk, 1));
    }
    for (int n = 0; n < hops; n++) {
        SL_TRY(backward(walk, SL_BACKWARD, 1, false));
        SL_TRY(forward_with_backward(walk, 1));
    }
    return SL_OK;
}

/* Backwards of both loops in turn; from the middle on, weight gradients wait until there is nothing else to do. */
static int drain(struct walk *walk) {
    const int hops = walk->schedule->ranks - 1 - walk->rank, turns = 2 * (walk->rank + 1);
    for (int n = 0; n < turns; n++)
        SL_TRY(backward(walk, n < turns / 2 ? SL_BACKWARD : SL_INPUT_GRADIENT, (n + 1) % 2, false));
    for (int n = 0; n < hops; n++) {
        SL_TRY(weight_gradient(walk));
        SL_TRY(backward(walk, SL_INPUT_GRADIENT, 0, false));
    }
    for (int n = 0; n <= walk->rank; n++) SL_TRY(weight_gradient(walk));
    return SL_OK;
}

int sl_generate_dualpipe(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, struct sl_error *error) {
    (void)kind;
    if (schedule->microbatches < 2 * schedule->ranks)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d microbatches on %d stages: must be at least %d, two a stage",
                            schedule->name, schedule->microbatches, schedule->ranks, 2 * schedule->ranks);
    for (int r = 0; r < schedule->ranks; r++) {
        struct walk walk = {.schedule = schedule, .rank = r};
        SL_TRY(fill(&walk));
        SL_TRY(main_part(&walk));
        SL_TRY(drain(&walk));
    }
    return SL_OK;
}
