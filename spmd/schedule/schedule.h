/* schedule.h - pipeline schedules as data: a list of actions for each rank.
 *
 * A pipeline has `ranks` ranks, and each rank has `loops` stages, assigned by the placement. On a ring stage = loop *
 * ranks + rank. On a V the second loop goes back: stage = 2 * ranks - 1 - rank. With SL_ADJACENT neighbouring stages
 * are on one rank: stage = rank * loops + loop. SL_ADJACENT_BETWEEN does so for the loops between the first and the
 * last one, and places these two as on a ring. Mirrored ranks hold two copies of the model: stages 0 to ranks - 1 are
 * the first copy, which goes up the ranks, the others the second, which comes down. Each copy has half of the
 * microbatches, the first one the lower half. A generator or a file provides the compute actions. One pass,
 * sl_schedule_lower, inserts communication and reduction. The checker, the simulator, the drawings and the executor all
 * read the lowered table.
 *
 * Besides its microbatch and loop, an action has the columns of the looping pipeline:
 *
 *     input   forward: the row it reads, of the batch (stage 0) or of the stage-input buffer; -1: it reads the
 *             last received state
 *     output  the row of the output buffer that a forward writes (last stage); -1: its result is sent on
 *     update  the row of the stage-input buffer into which a received state is copied; -1: the state is used at once
 *     params  the loop of the rank whose parameters are used
 *
 * Source of the columns: Lippe, "Looping Pipelines". Only breadth-first tables save states, in the stage-input buffer
 * of the first rank; in all other tables a state is used when it is received. */
#ifndef SL_SPMD_SCHEDULE_SCHEDULE_H
#define SL_SPMD_SCHEDULE_SCHEDULE_H

#include <stdio.h>

#include "spmd/base/error.h"

SL_BEGIN_C

enum sl_action_kind {
    SL_FORWARD,         /* F */
    SL_BACKWARD,        /* B: input and weight gradient together */
    SL_INPUT_GRADIENT,  /* I */
    SL_WEIGHT_GRADIENT, /* W */
    SL_SEND_ACTIVATION, /* send to the next stage */
    SL_TAKE_ACTIVATION, /* receive from the previous stage */
    SL_SEND_GRADIENT,   /* send to the previous stage */
    SL_TAKE_GRADIENT,   /* receive from the next stage */
    SL_REDUCE,          /* sums a loop's complete gradients over data */
    SL_UNSHARD,         /* begins to gather a loop's sharded parameters */
    SL_RESHARD,         /* frees the room of a loop's gathered parameters */
    SL_ACTION_KINDS
};

/* 12 bytes: large tables have tens of millions of actions. A column is either -1 or the action's microbatch, so a bit
 * suffices for it. */
struct sl_action {
    int time; /* iteration in which it runs, from 0 */
    uint16_t microbatch, loop;
    uint16_t peer; /* SEND and TAKE: the other rank */
    enum sl_action_kind kind : 8;
    bool paired : 1; /* shares its cell with the action before it: the two may overlap */
    bool has_input : 1, has_output : 1, has_update : 1; /* read the columns with sl_action_input and so on */
};

struct sl_rank_schedule {
    int count, capacity;
    struct sl_action *action;
};

enum { SL_MAX_STAGES = 1 << 16 }; /* most stages of a pipeline: ranks x loops */
enum { SL_MOST_UNSHARDED = 2 };   /* most loops of a rank with gathered parameters at a time */

struct sl_schedule {
    char name[32];
    int ranks, loops, microbatches;
    int copies;    /* copies of the model; each has consecutive stages and its part of the microbatches; 1 except on
                      mirrored ranks */
    int run;       /* set by sl_schedule_fuse: microbatches of a forward, an input gradient and their messages; 0:
                      not fused */
    bool ascends;  /* sl_schedule_ascend has reversed the order of its backwards */
    bool sharded;  /* set before lowering: stages' parameters are sharded over data, and gathered before use */
    bool crowded;  /* set before planning: the coordinates of one rank keep all cores busy (sl_schedule_crowds) */
    bool forwards; /* has only forwards and their messages */
    bool lowered;
    char wrong[120]; /* the first invalid action passed to sl_schedule_compute, for messages; "": none */
    int *stage;      /* [ranks][loops]: the stages of each rank; ascending within each copy of the model */
    int *place;      /* [stages]: rank * loops + loop */
    struct sl_rank_schedule *rank; /* [ranks] */
};

/* Generates the schedule called NAME (registry.h) for STAGES ranks with LOOPS stages each. If the numbers break a rule
 * of the algorithm, SL_BAD_INPUT names the rule; SL_FAILED if there is no memory. Breadth-first tables allow fewer
 * microbatches than ranks: a rank computes microbatch i of loop l in iteration i + rank + l * max(microbatches, ranks).
 * Free with sl_schedule_free. */
int sl_schedule_make(struct sl_schedule *schedule, const char *name, int stages, int loops, int microbatches,
                     struct sl_error *error);
void sl_schedule_free(struct sl_schedule *schedule);

/* Reverses the order of microbatches in the backwards of tables that have all forwards first, and backwards in
 * descending order (gpipe, looped-bfs, looped-dfs): microbatch 0 gets the times of the last microbatch, 1 the times of
 * the last but one, and so on. Weight gradients then need not wait for each other. Other tables, and lowered or fused
 * ones, stay unchanged. */
void sl_schedule_ascend(struct sl_schedule *schedule);

/* Inserts a TAKE before each action that needs a message, a SEND after each action with a result for another stage, and
 * a REDUCE after each loop's last weight gradient. In a sharded table the next SL_MOST_UNSHARDED loops of a rank are
 * gathered while it computes: an UNSHARD follows as soon as a RESHARD has made room. A lowered table stays
 * unchanged. */
int sl_schedule_lower(struct sl_schedule *schedule, struct sl_error *error);

/* Proves that the lowered table can be executed: walks it as the executor would, with SLOTS slots in each channel.
 * Every action must occur once, and after the actions it needs; messages must be received in the order in which they
 * are posted; nothing may deadlock. Otherwise SL_BAD_INPUT with the shortest explanation. Weight gradients run in
 * groups of GROUP microbatches, in ascending order. STASH [ranks] (may be NULL) receives the largest number of
 * microbatches each rank holds at once, summed over its loops. */
int sl_schedule_check(const struct sl_schedule *schedule, int slots, int group, int *stash, struct sl_error *error);

/* Makes a lowered table of forwards only, with the stages of LIKE and MICROBATCHES microbatches. Free with
 * sl_schedule_free. */
int sl_schedule_forward(struct sl_schedule *forward, const struct sl_schedule *like, int microbatches,
                        struct sl_error *error);
/* Makes a lowered table for PASSES evaluation passes in a row; ranks do not wait for each other between two passes.
 * Each pass has the forwards of the lowered table OF and their messages, in OF's order. If a copy of the model has n
 * microbatches in OF, its microbatch m of pass p is the copy's number p * n + m in the new table. Free with
 * sl_schedule_free. */
int sl_schedule_stream(struct sl_schedule *stream, const struct sl_schedule *of, int passes, struct sl_error *error);

/* *SLOTS receives the smallest number of slots, at least FEWEST, with which sl_schedule_check succeeds. SL_BAD_INPUT if
 * there is none. */
int sl_schedule_slots(const struct sl_schedule *schedule, int fewest, int *slots, struct sl_error *error);
/* The number of microbatches for which the stash of RANK must have room in each loop: the largest distance from the
 * lowest microbatch with a pending weight gradient to the highest microbatch with a finished forward, rounded up to a
 * multiple of GROUP and of a run. 0 without memory. */
int sl_schedule_window(const struct sl_schedule *schedule, int rank, int group);
/* The same for arrays that input gradients write and weight gradients read: from the lowest to the highest microbatch
 * with a finished input gradient and a pending weight gradient. */
int sl_schedule_backward_window(const struct sl_schedule *schedule, int rank, int group);
/* *FOLLOW: whether each weight gradient of RANK can run directly after its input gradient. This needs whole backwards
 * (B), in ascending order in each loop, each of whole groups of GROUP microbatches. False without memory. */
bool sl_schedule_weights_follow(const struct sl_schedule *schedule, int rank, int group, bool *follow);
/* *AT_ONCE: whether, in each loop of RANK, one action makes all weight gradients ready to run, in groups of GROUP
 * microbatches. False without memory. */
bool sl_schedule_weights_at_once(const struct sl_schedule *schedule, int rank, int group, bool *at_once);
/* Assigns to each loop of RANK a room, numbered from 1, for its whole gradient. The room is in use from the loop's
 * first weight gradient (of GROUP microbatches) to its REDUCE. Loops in use at the same time get different rooms.
 * Writes the numbers to ROOM [loops]. False without memory. */
bool sl_schedule_gradient_rooms(const struct sl_schedule *schedule, int rank, int group, int *room);

/* The largest number of RANK's loops with gathered parameters at a time. */
int sl_schedule_unsharded(const struct sl_schedule *schedule, int rank);

/* The number of iterations of a breadth-first forward pass: loops * max(microbatches, ranks) + min(microbatches, ranks)
 * - 1. */
int sl_schedule_iterations(const struct sl_schedule *schedule);
/* The iteration of such a pass, from 0, in which RANK computes MICROBATCH in LOOP: microbatch + rank + loop *
 * max(microbatches, ranks). */
int sl_schedule_iteration(const struct sl_schedule *schedule, int rank, int loop, int microbatch);

/* Prints, from the actions of the lowered table, the four columns described above: rows of indices for each stage, in
 * the notebook's form. SL_FAILED if there is no memory. */
int sl_schedule_print_indices(const struct sl_schedule *schedule, FILE *file);

/* Prints one line for each rank and one cell for each iteration: "4F0" is the forward of microbatch 0 on stage 4,
 * "0F7+7B3" are two actions in one iteration. SL_FAILED if there is no memory. */
int sl_schedule_print_table(const struct sl_schedule *schedule, FILE *file);

/* ---- for generators, and for passes over tables ---- */

enum sl_stage_placement { SL_RING, SL_V, SL_MIRRORED, SL_ADJACENT, SL_ADJACENT_BETWEEN };

/* Makes an empty table for RANKS x LOOPS stages. SL_BAD_INPUT names a number out of range; SL_FAILED if there is no
 * memory. Free with sl_schedule_free. */
int sl_schedule_open(struct sl_schedule *schedule, const char *name, int ranks, int loops, int microbatches,
                     struct sl_error *error);
/* Fills in `stage`, `place` and `copies` for PLACEMENT; mirrored ranks have two loops. A caller with another placement
 * fills them in itself. */
void sl_schedule_place_stages(struct sl_schedule *schedule, enum sl_stage_placement placement);

/* Appends a copy of ACTION to RANK's list. NULL if there is no memory. */
struct sl_action *sl_schedule_append(struct sl_rank_schedule *rank, const struct sl_action *action);
/* Appends a compute action of STAGE to the list of its rank. The action's columns save no state. SL_FAILED if there is
 * no memory. If the schedule has no such kind, stage or microbatch, the action is left out; sl_schedule_clock and
 * sl_schedule_lower report the first such action. */
int sl_schedule_compute(struct sl_schedule *schedule, enum sl_action_kind kind, int stage, int microbatch, bool paired);
/* Checks a table of compute actions: SL_BAD_INPUT if an action has a stage, loop or microbatch that the table does not
 * have, or if the stages have not been placed. sl_schedule_clock and sl_schedule_lower begin with this check. */
int sl_schedule_check_actions(const struct sl_schedule *schedule, struct sl_error *error);
/* Sets the time of every compute action: each rank runs its next cell as soon as the actions it needs have run in an
 * earlier iteration. SL_BAD_INPUT if this never happens; the line is the shortest explanation of the deadlock. */
int sl_schedule_clock(struct sl_schedule *schedule, struct sl_error *error);

/* The number of microbatches of one action of KIND: the action's microbatch and those after it. */
static inline int sl_schedule_run(const struct sl_schedule *schedule, enum sl_action_kind kind) {
    return kind == SL_WEIGHT_GRADIENT || kind >= SL_REDUCE || schedule->run < 1 ? 1 : schedule->run;
}
/* The number of stages. */
static inline int sl_schedule_stages(const struct sl_schedule *schedule) { return schedule->ranks * schedule->loops; }
/* The number of stages of a copy of the model. */
static inline int sl_schedule_depth(const struct sl_schedule *schedule) {
    return sl_schedule_stages(schedule) / schedule->copies;
}
/* STAGE's number in its copy of the model. */
static inline int sl_schedule_position(const struct sl_schedule *schedule, int stage) {
    return stage % sl_schedule_depth(schedule);
}
static inline bool sl_schedule_is_first(const struct sl_schedule *schedule, int stage) {
    return sl_schedule_position(schedule, stage) == 0;
}
static inline bool sl_schedule_is_last(const struct sl_schedule *schedule, int stage) {
    return sl_schedule_position(schedule, stage) == sl_schedule_depth(schedule) - 1;
}
/* The first microbatch of copy number COPY. */
static inline int sl_schedule_first_of_copy(const struct sl_schedule *schedule, int copy) {
    return (copy * schedule->microbatches + schedule->copies - 1) / schedule->copies;
}
/* The first microbatch of STAGE. */
static inline int sl_schedule_first_microbatch(const struct sl_schedule *schedule, int stage) {
    return sl_schedule_first_of_copy(schedule, stage / sl_schedule_depth(schedule));
}
/* The end of STAGE's microbatches, excluded. */
static inline int sl_schedule_end_microbatch(const struct sl_schedule *schedule, int stage) {
    return sl_schedule_first_of_copy(schedule, stage / sl_schedule_depth(schedule) + 1);
}
/* The stage of RANK's loop LOOP. */
static inline int sl_schedule_stage(const struct sl_schedule *schedule, int rank, int loop) {
    return schedule->stage[rank * schedule->loops + loop];
}
/* The rank that holds STAGE. */
static inline int sl_schedule_rank_of(const struct sl_schedule *schedule, int stage) {
    return schedule->place[stage] / schedule->loops;
}
/* The number of STAGE among its rank's loops. */
static inline int sl_schedule_loop_of(const struct sl_schedule *schedule, int stage) {
    return schedule->place[stage] % schedule->loops;
}
/* The same stage of the other copy, if the model has two copies. */
static inline int sl_schedule_twin(const struct sl_schedule *schedule, int stage) {
    return (stage + sl_schedule_depth(schedule)) % sl_schedule_stages(schedule);
}
/* Whether an action of KIND computes the input gradient. */
static inline bool sl_has_input_gradient(enum sl_action_kind kind) {
    return kind == SL_BACKWARD || kind == SL_INPUT_GRADIENT;
}
/* Whether an action of KIND computes the weight gradient. */
static inline bool sl_has_weight_gradient(enum sl_action_kind kind) {
    return kind == SL_BACKWARD || kind == SL_WEIGHT_GRADIENT;
}

/* Whether an action of KIND is a forward, or its message. */
static inline bool sl_goes_forward(enum sl_action_kind kind) {
    return kind == SL_FORWARD || kind == SL_TAKE_ACTIVATION || kind == SL_SEND_ACTIVATION;
}

/* An action's columns; params is its loop. */
static inline int sl_action_input(const struct sl_action *action) {
    return action->has_input ? action->microbatch : -1;
}
static inline int sl_action_output(const struct sl_action *action) {
    return action->has_output ? action->microbatch : -1;
}
static inline int sl_action_update(const struct sl_action *action) {
    return action->has_update ? action->microbatch : -1;
}
static inline int sl_action_params(const struct sl_action *action) { return action->loop; }

/* The letter of a compute action: F, B, I or W. */
char sl_action_letter(enum sl_action_kind kind);
/* "forward", "send of the activation", ...: for messages. */
const char *sl_action_name(enum sl_action_kind kind);

/* For sl_schedule_lower: inserts UNSHARD and RESHARD into RANK's actions, which include messages. SL_FAILED without
 * memory. */
int sl_schedule_insert_shards(struct sl_rank_schedule *rank);
/* For sl_schedule_check: a loop's parameters must be gathered before it computes, and every loop's room must become
 * free. */
int sl_schedule_check_shards(const struct sl_schedule *schedule, struct sl_error *error);

SL_END_C
#endif
