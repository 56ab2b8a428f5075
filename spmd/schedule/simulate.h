/* simulate.h - how long a lowered table takes, told from what its actions cost.
 *
 * The table is walked as the executor walks it: each rank does its actions in order, a message leaves at its SEND and
 * arrives `communication` later, a TAKE waits for it. Channels have room for every message, and messages do not slow
 * each other down. Reductions run beside the compute, one after the other on each rank. Any unit of time will do. */
#ifndef SL_SPMD_SCHEDULE_SIMULATE_H
#define SL_SPMD_SCHEDULE_SIMULATE_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* Of one microbatch (reduce: of one loop's gradients). A full backward costs input and weight gradient. */
struct sl_stage_costs {
    double forward, input_gradient, weight_gradient, reduce;
};

struct sl_costs {
    int count; /* 1: all stages cost the same; otherwise one entry a stage */
    const struct sl_stage_costs *stage;
    double communication; /* one message between different ranks; within a rank it takes no time */
    bool overlap; /* a loop is reduced from its last weight gradient on; otherwise after all of the rank's compute */
    /* 0: a backward is one piece, as in the literature. Otherwise as the executor runs it: it sends the input gradient
     * first, and weight gradients run in groups of so many microbatches, in ascending order. */
    int group;
};

/* A piece of work, F B I W or REDUCE. */
struct sl_event {
    enum sl_action_kind kind;
    int rank, stage, loop;
    int microbatch, microbatches; /* the first one, and how many: a group's weight gradients are one piece */
    double begin, end;
};

struct sl_simulated_rank {
    double busy;    /* computing */
    double end;     /* of its compute */
    double reduced; /* end of its last reduction */
    double bubble;  /* idle share of the pipeline's compute span */
    int stash;      /* most microbatches held at once, over all its loops */
};

struct sl_simulation {
    int ranks;
    double span;   /* from the first compute to the last, over all ranks */
    double step;   /* until the reductions have ended, too */
    double bubble; /* idle share of all ranks' spans */
    struct sl_simulated_rank *rank;
    int count;
    struct sl_event *event; /* in order of time on each rank, the reductions of a rank among themselves */
};

/* Proves the table first: SL_BAD_INPUT as by sl_schedule_check, or because of a cost that is negative, not finite, or
 * given for another number of stages. Free RESULT with sl_simulation_free. */
int sl_schedule_simulate(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                         struct sl_error *error);
void sl_simulation_free(struct sl_simulation *simulation);

SL_END_C
#endif
