/* dualpipe.c - dualpipe and dualpipev: two stages per rank; forwards and backwards share cells.
 *
 * In DualPipe two copies of the model lie on mirrored ranks, and microbatches enter at both ends. A rank does for one
 * copy what its mirrored rank does for the other. DualPipeV merges the two ranks into one, and the copies into one V.
 * In the main part the forward of one loop is paired with the backward of the other, so that the communication of one
 * can hide behind the products of the other. Source: DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024) and the code
 * published with it. */
#include "spmd/schedule/generate.h"

struct walk {
    struct sl_schedule *schedule;
    int rank;
    int above, hops;             /* ranks between it and the end at which microbatches enter its loop 0; ranks
                                    to the meeting of loops */
    int microbatches;            /* number that enters at that end */
    int forward[2], backward[2]; /* next microbatch of each loop */
    int pending;                 /* input gradients before this action of the rank have their weight gradients */
};

static int forward(struct walk *walk, int loop) {
    return sl_schedule_compute(walk->schedule, SL_FORWARD, sl_schedule_stage(walk->schedule, walk->rank, loop),
                               walk->forward[loop]++, false);
}

/* Appends a backward, or only its input gradient. */
static int backward(struct walk *walk, enum sl_action_kind kind, int loop, bool paired) {
    return sl_schedule_compute(walk->schedule, kind, sl_schedule_stage(walk->schedule, walk->rank, loop),
                               walk->backward[loop]++, paired);
}

static int forward_with_backward(struct walk *walk, int loop) {
    SL_TRY(forward(walk, loop));
    return backward(walk, SL_BACKWARD, 1 - loop, true);
}

/* Appends the weight gradient of the oldest input gradient without one; there always is one. */
static int weight_gradient(struct walk *walk) {
    const struct sl_action *action = walk->schedule->rank[walk->rank].action;
    while (action[walk->pending].kind != SL_INPUT_GRADIENT) walk->pending++;
    action += walk->pending++;
    return sl_schedule_compute(walk->schedule, SL_WEIGHT_GRADIENT,
                               sl_schedule_stage(walk->schedule, walk->rank, action->loop), action->microbatch, false);
}

static int fill(struct walk *walk) {
    const int hops = walk->hops;
    for (int n = 0; n < 2 * hops; n++) SL_TRY(forward(walk, 0));
    for (int n = 0; n <= walk->above; n++) {
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

/* The last rank's first forward is not paired: otherwise it would wait for the first gradient together with the
 * backward. */
static int main_part(struct walk *walk) {
    const int hops = walk->hops;
    for (int n = 0; n < walk->microbatches - walk->above - 1 - 2 * hops; n++) {
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

/* Backwards of both loops alternate; from the middle on, weight gradients wait until there is no other work. */
static int drain(struct walk *walk) {
    const int hops = walk->hops, turns = 2 * (walk->above + 1);
    for (int n = 0; n < turns; n++)
        SL_TRY(backward(walk, n < turns / 2 ? SL_BACKWARD : SL_INPUT_GRADIENT, (n + 1) % 2, false));
    for (int n = 0; n < hops; n++) {
        SL_TRY(weight_gradient(walk));
        SL_TRY(backward(walk, SL_INPUT_GRADIENT, 0, false));
    }
    for (int n = 0; n <= walk->above; n++) SL_TRY(weight_gradient(walk));
    return SL_OK;
}

static struct walk begin(struct sl_schedule *schedule, int rank) {
    const int mirrored = schedule->ranks - 1 - rank, height = schedule->ranks / schedule->copies;
    struct walk walk = {.schedule = schedule, .rank = rank, .above = rank};
    if (schedule->copies > 1 && mirrored < rank) walk.above = mirrored;
    walk.hops = height - 1 - walk.above;
    walk.microbatches = schedule->microbatches / schedule->copies;
    for (int l = 0; l < 2; l++)
        walk.forward[l] = walk.backward[l] =
            sl_schedule_first_microbatch(schedule, sl_schedule_stage(schedule, rank, l));
    return walk;
}

int sl_generate_dualpipe(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, struct sl_error *error) {
    const int ranks = schedule->ranks, microbatches = schedule->microbatches, copies = schedule->copies;
    (void)kind;
    if (ranks % copies)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d stages: must be an even number, for ranks in pairs",
                            schedule->name, ranks);
    if (microbatches < 2 * ranks)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d microbatches on %d stages: must be at least %d, two a stage",
                            schedule->name, microbatches, ranks, 2 * ranks);
    if (microbatches % copies)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d microbatches: must be an even number, half of them from each end",
                            schedule->name, microbatches);
    for (int r = 0; r < ranks; r++) {
        struct walk walk = begin(schedule, r);
        SL_TRY(fill(&walk));
        SL_TRY(main_part(&walk));
        SL_TRY(drain(&walk));
    }
    return SL_OK;
}
