/* simulate.h - predicts the time of a lowered table from the times of its actions.
 *
 * The table is walked as the executor walks it. Each rank runs its actions in order. A message leaves at its SEND and
 * arrives `communication` later; a TAKE waits for it. Channels have room for every message, and messages do not slow
 * each other down. A rank's reductions run in parallel with its compute actions, one after another, and so do the
 * gathers its UNSHARDs begin; compute actions wait for the gather of their loop. The optimizer runs on the rank itself:
 * it updates a loop between two actions once the loop's reduction has ended; if nothing is reduced, or not in parallel
 * with compute, after all actions. All times are in one unit, which the caller chooses. */
#ifndef SL_SPMD_SCHEDULE_SIMULATE_H
#define SL_SPMD_SCHEDULE_SIMULATE_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* The largest allowed time of an action, so that the sum of all times of a table is finite. */
#define SL_MAX_COST 1e9

/* The times of one stage for one microbatch. `reduce` and `optimizer` are for all gradients and parameters of one loop,
 * once a step; `unshard` is for each gather of its parameters. A full backward takes input_gradient +
 * weight_gradient. */
struct sl_stage_costs {
    double forward, input_gradient, weight_gradient, reduce, optimizer, unshard;
};

enum { SL_LONG_WAIT = 12 };

struct sl_costs {
    int count; /* 1: all stages take the same times; otherwise the number of stages, with an entry per stage */
    const struct sl_stage_costs *stage;
    double shared;        /* 0 to 1: the part of a forward's and an input gradient's time spent only once per run of
                             microbatches */
    double communication; /* time of a message between two ranks; 0 within a rank */
    bool overlap;         /* a loop is reduced right after its last weight gradient; otherwise after all compute of the
                             rank */
    /* 0: a backward is one piece, as in the literature. Otherwise as in the executor: the input gradient is sent first,
     * and weight gradients run in groups of this many microbatches, in ascending order. */
    int group;
    /* Cores the ranks share. COORDINATES: number of coordinates on these cores, if there are more than ranks (0: as
     * many as ranks); the others run copies of the table, with the same work at the same time. All ranks with work get
     * equal shares of the cores, at most a whole core each. cores = 0: each rank has a core of its own. */
    int cores, coordinates;
    /* Costs of waiting. If ranks have cores of their own, a rank falls asleep once it has waited `awake` for a message.
     * It then continues `wake` after the message has come, and the sender takes `notify` to wake it. If the rank has
     * only just fallen asleep, it continues `nap` after the message; for waits up to SL_LONG_WAIT times `awake` the
     * delay lies between `nap` and `wake`. If ranks share cores, the next work after a wait takes `turn` longer. */
    double awake, wake, nap, notify, turn;
    /* Standard deviation of the waits, as a share of a wait. A wait near `awake` then ends in sleep with the
     * probability that it is longer than `awake`, and costs its mean. */
    double spread;
};

/* Kinds of events: the actions of a schedule, and updates of parameters. */
enum { SL_EVENT_OPTIMIZER = SL_ACTION_KINDS, SL_EVENT_KINDS };

/* A piece of work of kind F, B, I, W, REDUCE, UNSHARD, RESHARD or EVENT_OPTIMIZER. Updates and gathers without a
 * duration have no events. A RESHARD takes no time. */
struct sl_event {
    int kind; /* enum sl_action_kind, or SL_EVENT_OPTIMIZER */
    int rank, stage, loop;
    /* The first microbatch and their number: the weight gradients of a group are one event. */
    int microbatch, microbatches;
    double begin, end;
};

struct sl_simulated_rank {
    double busy;      /* time spent computing */
    double optimizer; /* time spent in the optimizer */
    double starved;   /* extra compute time because other ranks had the cores */
    double transfer;  /* time spent waiting for messages on their way */
    double gathering; /* time spent waiting for gathers of parameters */
    double end;       /* end of its compute and of the updates between its actions */
    double reduced;   /* end of its last reduction */
    double reducing;  /* time of waits for reductions after `end` */
    double updated;   /* end of its last update */
    double bubble;    /* share of the pipeline's compute span in which the rank does not compute (it may update) */
    int stash;        /* most microbatches held at once, over all its loops */
};

struct sl_simulation {
    int ranks;
    double span;   /* from the begin of the first compute to the largest `end` of all ranks */
    double step;   /* until the end of reductions and updates */
    double bubble; /* share of the span in which ranks have nothing to compute, over all ranks */
    struct sl_simulated_rank *rank;
    int count;
    struct sl_event *event; /* NULL if not requested; sorted by time within each rank; a rank's reductions, and
                               its gathers, are sorted among themselves */
};

/* Proves a table by sl_schedule_check, and simulates it. SL_BAD_INPUT as by sl_schedule_check, or if a time is not from
 * 0 to SL_MAX_COST, or if times are given for another number of stages. Free RESULT with sl_simulation_free. */
int sl_schedule_simulate(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                         struct sl_error *error);
/* The same without the list of events, which takes more memory than the table. */
int sl_schedule_time(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                     struct sl_error *error);
void sl_simulation_free(struct sl_simulation *simulation);

SL_END_C
#endif
