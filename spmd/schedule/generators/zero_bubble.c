/* zero_bubble.c - zbv: two stages per rank, placed on a V, and weight gradients in the bubbles.
 *
 * The last stage is on the first rank, so gradients come back early. If forward, input gradient and weight gradient
 * take the same time, a rank that has begun never waits. If there are too few microbatches to fill the pipeline, they
 * are scheduled as if there were enough, without the missing ones. */
#include "spmd/schedule/generate.h"

struct walk {
    struct sl_schedule *schedule;
    int rank;
    int next[SL_ACTION_KINDS][2]; /* next microbatch of each kind of action in each loop */
};

static int step(struct walk *walk, enum sl_action_kind kind, int loop) {
    const int microbatch = walk->next[kind][loop]++, stage = sl_schedule_stage(walk->schedule, walk->rank, loop);
    if (microbatch >= walk->schedule->microbatches) return SL_OK;
    return sl_schedule_compute(walk->schedule, kind, stage, microbatch, false);
}

struct turn {
    enum sl_action_kind kind;
    int loop;
};

static const enum sl_action_kind F = SL_FORWARD, I = SL_INPUT_GRADIENT, W = SL_WEIGHT_GRADIENT;

/* Takes COUNT turns one after the other, TIMES times. Once no turn has a microbatch left, the turns are only
 * counted. */
static int repeat(struct walk *walk, int times, int count, const struct turn *turn) {
    if (times < 0) return SL_OK;
    for (bool left = true; times > 0 && left; times--) {
        left = false;
        for (int i = 0; i < count; i++) {
            SL_TRY(step(walk, turn[i].kind, turn[i].loop));
            left = left || walk->next[turn[i].kind][turn[i].loop] < walk->schedule->microbatches;
        }
    }
    for (int i = 0; i < count; i++) walk->next[turn[i].kind][turn[i].loop] += times;
    return SL_OK;
}

static int warm_up(struct walk *walk) {
    const int hops = walk->schedule->ranks - 1 - walk->rank;
    SL_TRY(repeat(walk, 2 * hops + 1, 1, (const struct turn[]){{F, 0}}));
    SL_TRY(repeat(walk, walk->rank, 2, (const struct turn[]){{F, 1}, {F, 0}}));
    return repeat(walk, hops + 1, 3, (const struct turn[]){{F, 1}, {I, 1}, {W, 1}});
}

static int take_turns(struct walk *walk, int microbatches) {
    static const struct turn turn[] = {{F, 0}, {I, 0}, {W, 0}, {F, 1}, {I, 1}, {W, 1}};
    const int *forwards = walk->next[SL_FORWARD];
    SL_TRY(repeat(walk, microbatches - forwards[0], 6, turn));
    return repeat(walk, microbatches - forwards[1], 5, turn + 1);
}

/* Input gradients come first, because other ranks wait for them; weight gradients follow. */
static int cool_down(struct walk *walk, int microbatches) {
    const int *weights = walk->next[SL_WEIGHT_GRADIENT];
    SL_TRY(repeat(walk, walk->rank, 2, (const struct turn[]){{I, 0}, {I, 1}}));
    SL_TRY(repeat(walk, walk->schedule->ranks - walk->rank, 2, (const struct turn[]){{I, 0}, {W, 0}}));
    SL_TRY(repeat(walk, microbatches - weights[1], 1, (const struct turn[]){{W, 1}}));
    return repeat(walk, microbatches - weights[0], 1, (const struct turn[]){{W, 0}});
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
