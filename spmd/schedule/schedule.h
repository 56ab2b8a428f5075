/* schedule.h - pipeline schedules as data: a list of actions per rank.
 *
 * A pipeline has `ranks` ranks, each with `loops` stages; which ones is the placement: on a ring stage = loop * ranks +
 * rank, on a V the second loop goes back (stage = 2 * ranks - 1 - rank). A generator (or a file) gives the compute
 * actions, one lowering pass inserts communication and reduction (sl_schedule_lower). Checker, simulator, drawing and
 * the executor all see the lowered table.
 *
 * Besides microbatch and loop, an action carries the looping pipeline's columns:
 *   input   forward: row of the batch (stage 0) or of the stage-input buffer that it reads; -1: the state last received
 *   output  row of the output buffer that a forward writes (last stage), -1: it is sent on
 *   update  row of the stage-input buffer that a received state is kept in, -1: used at once
 *   params  which of the rank's loops' parameters
 * Source of the columns: Lippe, "Looping Pipelines". Only breadth-first tables keep states in the stage-input buffer
 * (of the first rank); in all others a state is used when it is taken. */
#ifndef SL_SPMD_SCHEDULE_SCHEDULE_H
#define SL_SPMD_SCHEDULE_SCHEDULE_H

#include <stdio.h>

#include "spmd/base/error.h"

SL_BEGIN_C

enum sl_action_kind {
    SL_FORWARD,         /* F */
    SL_BACKWARD,        /* B: input and weight gradient */
    SL_INPUT_GRADIENT,  /* I */
    SL_WEIGHT_GRADIENT, /* W */
    SL_SEND_ACTIVATION, /* to the next stage */
    SL_TAKE_ACTIVATION, /* from the previous stage */
    SL_SEND_GRADIENT,   /* to the previous stage */
    SL_TAKE_GRADIENT,   /* from the next stage */
    SL_REDUCE,          /* a loop's gradients are complete: sum them over data */
    SL_ACTION_KINDS
};

struct sl_action {
    enum sl_action_kind kind;
    int time; /* iteration of the generator's clock, from 0 */
    int microbatch, loop;
    int input, output, update, params;
    int peer;    /* SEND, TAKE: the other rank */
    bool paired; /* it shares its cell with the action before it: the two are free to overlap */
};

struct sl_rank_schedule {
    int count, capacity;
    struct sl_action *action;
};

struct sl_schedule {
    char name[32];
    int ranks, loops, microbatches;
    bool lowered;
    int *stage;                    /* [ranks][loops]: the stages that each rank holds, ascending */
    int *place;                    /* [stages]: rank * loops + loop */
    struct sl_rank_schedule *rank; /* [ranks] */
};

/* Generates NAME (registry.h) for STAGES ranks with LOOPS stages each. SL_BAD_INPUT names the rule of the algorithm
 * that is broken. Breadth-first tables allow fewer microbatches than ranks: a stage sees microbatch i of loop l in
 * iteration i + rank + l * max(microbatches, ranks). Free with sl_schedule_free. */
int sl_schedule_make(struct sl_schedule *schedule, const char *name, int stages, int loops, int microbatches,
                     struct sl_error *error);
void sl_schedule_free(struct sl_schedule *schedule);

/* Inserts TAKE before and SEND after the actions that need them, and a REDUCE after each loop's last weight gradient.
 */
int sl_schedule_lower(struct sl_schedule *schedule, struct sl_error *error);

/* Proves the lowered table by walking it as the executor would, with SLOTS slots a channel: every action once, nothing
 * before what it needs, messages taken in the order in which their sender posts them, no deadlock. A broken table gets
 * the shortest explanation. Weight gradients run in groups of GROUP microbatches, in ascending order; STASH [ranks]
 * (may be NULL) receives the most microbatches that a rank holds at once, summed over its loops. */
int sl_schedule_check(const struct sl_schedule *schedule, int slots, int group, int *stash, struct sl_error *error);

/* The lowered table of FORWARD alone, on the stages of LIKE, with MICROBATCHES. Free with sl_schedule_free. */
int sl_schedule_forward(struct sl_schedule *forward, const struct sl_schedule *like, int microbatches,
                        struct sl_error *error);

/* The fewest slots, at least FEWEST, with which the table can be proven; SL_BAD_INPUT where no number is enough. */
int sl_schedule_slots(const struct sl_schedule *schedule, int fewest, int *slots, struct sl_error *error);
/* Microbatches that RANK's stash must have room for in one loop, a multiple of GROUP: from the lowest whose weight
 * gradient is still to come to the highest whose forward was done. */
int sl_schedule_window(const struct sl_schedule *schedule, int rank, int group);
/* The same for what is made in an input gradient and used by the weight gradient: from the lowest whose input gradient
 * was done and whose weight gradient is still to come. */
int sl_schedule_backward_window(const struct sl_schedule *schedule, int rank, int group);

/* Iterations of a breadth-first forward pass: loops * max(microbatches, ranks) + min(microbatches, ranks) - 1. */
int sl_schedule_iterations(const struct sl_schedule *schedule);

/* Prints the four index rows of each stage, as the notebook does, from the lowered table's own actions. SL_FAILED
 * without memory. */
int sl_schedule_print_indices(const struct sl_schedule *schedule, FILE *file);

/* Prints one line a rank, one cell an iteration: "4F0" is stage 4, forward, microbatch 0; "0F7+7B3" are two in one
 * iteration. SL_FAILED without memory. */
int sl_schedule_print_table(const struct sl_schedule *schedule, FILE *file);

/* ---- for generators and passes over tables ---- */

enum sl_stage_placement { SL_RING, SL_V };

/* An empty table with memory for RANKS x LOOPS stages. SL_FAILED without memory, SL_BAD_INPUT names a number that is
 * out of range. sl_schedule_place_stages fills in the placement; whoever needs another one writes stage and place. */
int sl_schedule_open(struct sl_schedule *schedule, const char *name, int ranks, int loops, int microbatches,
                     struct sl_error *error);
void sl_schedule_place_stages(struct sl_schedule *schedule, enum sl_stage_placement placement);

/* Appends a copy to RANK's list. NULL without memory. */
struct sl_action *sl_schedule_append(struct sl_rank_schedule *rank, const struct sl_action *action);
/* Appends a compute action of STAGE to the rank that holds it, with its columns: no state is kept. */
int sl_schedule_compute(struct sl_schedule *schedule, enum sl_action_kind kind, int stage, int microbatch, bool paired);
/* Gives every compute action its time: each rank does its next cell as soon as what it needs was done in an earlier
 * iteration. SL_BAD_INPUT where that never happens: the message is the shortest explanation (who waits for whom). */
int sl_schedule_clock(struct sl_schedule *schedule, struct sl_error *error);

static inline int sl_schedule_stages(const struct sl_schedule *schedule) { return schedule->ranks * schedule->loops; }
static inline int sl_schedule_stage(const struct sl_schedule *schedule, int rank, int loop) {
    return schedule->stage[rank * schedule->loops + loop];
}
/* The rank that holds STAGE, and which of its loops that is. */
static inline int sl_schedule_rank_of(const struct sl_schedule *schedule, int stage) {
    return schedule->place[stage] / schedule->loops;
}
static inline int sl_schedule_loop_of(const struct sl_schedule *schedule, int stage) {
    return schedule->place[stage] % schedule->loops;
}
/* Which of the two gradients an action computes. */
static inline bool sl_has_input_gradient(enum sl_action_kind kind) {
    return kind == SL_BACKWARD || kind == SL_INPUT_GRADIENT;
}
static inline bool sl_has_weight_gradient(enum sl_action_kind kind) {
    return kind == SL_BACKWARD || kind == SL_WEIGHT_GRADIENT;
}

/* One letter a compute action: F B I W. */
char sl_action_letter(enum sl_action_kind kind);

SL_END_C
#endif
