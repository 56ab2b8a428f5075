/* schedule.h - pipeline schedules as data: a list of actions per rank.
 *
 * A pipeline has `ranks` ranks, each with `loops` stages; stage = loop * ranks + rank (the ring placement). A generator
 * writes the compute actions (sl_schedule_make), one lowering pass inserts communication and reduction
 * (sl_schedule_lower). Checker, drawing and the executor all see the lowered table.
 *
 * Besides microbatch and loop, an action carries the looping pipeline's columns:
 *   input   row of the stage-input buffer that a forward reads (first rank), -1: the state last received
 *   output  row of the output buffer that a forward writes (last stage), -1: it is sent on
 *   update  row of the stage-input buffer that a received state is kept in (first rank), -1: used at once
 *   params  which of the rank's loops' parameters
 * Source of the columns: Lippe, "Looping Pipelines"; of gpipe: Huang et al. 2019; of looped-bfs: Lamy-Poirier 2023. */
#ifndef SL_SPMD_SCHEDULE_H
#define SL_SPMD_SCHEDULE_H

#include <stdio.h>

#include "spmd/error.h"

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
    int peer; /* SEND, TAKE: the other rank */
};

struct sl_rank_schedule {
    int count, capacity;
    struct sl_action *action;
};

struct sl_schedule {
    char name[32];
    int ranks, loops, microbatches;
    bool lowered;
    struct sl_rank_schedule *rank; /* [ranks] */
};

/* Generates NAME ("gpipe", "looped-bfs") for STAGES ranks with LOOPS stages each. Fewer microbatches than ranks are
 * allowed: a stage sees microbatch i of loop l in iteration i + rank + l * max(microbatches, ranks). SL_BAD_INPUT names
 * the rule that is broken. Free with sl_schedule_free. */
int sl_schedule_make(struct sl_schedule *schedule, const char *name, int stages, int loops, int microbatches,
                     struct sl_error *error);
void sl_schedule_free(struct sl_schedule *schedule);

/* Inserts TAKE before and SEND after the actions that need them, and a REDUCE after each loop's last weight gradient.
 */
int sl_schedule_lower(struct sl_schedule *schedule, struct sl_error *error);

/* Proves the lowered table by walking it with SLOTS slots a channel: every action once, nothing before what it needs,
 * no deadlock. *STASH (may be NULL) receives the most microbatches that one rank holds at once in one loop. */
int sl_schedule_check(const struct sl_schedule *schedule, int slots, int *stash, struct sl_error *error);

/* Iterations of the forward pass: loops * max(microbatches, ranks) + min(microbatches, ranks) - 1. */
int sl_schedule_iterations(const struct sl_schedule *schedule);

/* Prints the four index rows of each stage, as the notebook does, from the lowered table's own actions. SL_FAILED
 * without memory. */
int sl_schedule_print_indices(const struct sl_schedule *schedule, FILE *file);

/* Prints one line a rank, one cell an iteration ("4F0" = stage 4, forward, microbatch 0). */
void sl_schedule_print_table(const struct sl_schedule *schedule, FILE *file);

/* For generators and passes over tables: appends a copy to RANK's list (NULL without memory); the stage that RANK's
 * LOOP is; which of the two gradients an action computes. */
struct sl_action *sl_schedule_append(struct sl_rank_schedule *rank, const struct sl_action *action);
static inline int sl_schedule_stage(const struct sl_schedule *schedule, int rank, int loop) {
    return loop * schedule->ranks + rank;
}
/* The ranks that hold the next and the previous stage. */
static inline int sl_schedule_next(const struct sl_schedule *schedule, int rank) {
    return (rank + 1) % schedule->ranks;
}
static inline int sl_schedule_previous(const struct sl_schedule *schedule, int rank) {
    return (rank + schedule->ranks - 1) % schedule->ranks;
}
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
