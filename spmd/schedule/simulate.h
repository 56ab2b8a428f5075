/* simulate.h - how long a lowered table takes if each action takes a given time.
 *
 * The table is walked as the executor walks it. Each rank runs its actions in order. A message leaves at its SEND and
 * arrives `communication` later; a TAKE waits for it. Channels have room for every message, and messages do not slow
 * each other down. A rank's reductions run beside its compute actions, one after another, and so do the gathers that
 * its UNSHARDs begin; what computes waits for its loop's. The optimizer is the
 * rank's own work: a loop's turn comes when its reduction has ended, between actions; where nothing is reduced, or not
 * beside compute, after all of them. All times are in one unit, which the caller chooses. */
#ifndef SL_SPMD_SCHEDULE_SIMULATE_H
#define SL_SPMD_SCHEDULE_SIMULATE_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* The longest time that anything may take: the sum over a table of all of them is still a number. */
#define SL_MAX_COST 1e9

/* The times of one stage for one microbatch; `reduce` and `optimizer` are for all gradients and parameters of one loop,
 * once a step, and `unshard` for its parameters, each time that they are gathered. A full backward takes input_gradient
 * + weight_gradient. */
struct sl_stage_costs {
    double forward, input_gradient, weight_gradient, reduce, optimizer, unshard;
};

enum { SL_LONG_WAIT = 12 };

struct sl_costs {
    int count; /* 1: all stages take the same times; otherwise the number of stages, with an entry for each */
    const struct sl_stage_costs *stage;
    double
        shared; /* 0 to 1: the part of a forward's and an input gradient's time that a run of microbatches takes once */
    double communication; /* time of a message between two ranks; within a rank it takes none */
    bool overlap; /* a loop is reduced as soon as its last weight gradient is done; otherwise after all compute of the
                     rank */
    /* 0: a backward is one piece, as in the literature. Otherwise the executor's way: it sends the input gradient
     * first, and weight gradients run in groups of this many microbatches, in ascending order. */
    int group;
    /* Cores that the ranks share, with other copies of the table, which have the same work at the same time, where
     * there are more COORDINATES than ranks (0: there are as many). All that have work get equal shares of the cores,
     * and none more than a whole one. 0: each rank has a core of its own. */
    int cores, coordinates;
    /* Who has a core of its own and has waited for a message for longer than `awake` sleeps: it goes on `wake` later
     * than the message comes, and the sender needs `notify` for waking it. Who has only just fallen asleep goes on
     * `nap` later; between them lie waits of up to SL_LONG_WAIT times `awake`. Who shares cores needs `turn` more for
     * its next work after it has waited. */
    double awake, wake, nap, notify, turn;
    /* Waits do not always take as long: their standard deviation, as a share of what they take. One that is near
     * `awake` then ends in sleep as often as it is longer, and costs as much in the mean. */
    double spread;
};

/* The kind of an event in which parameters are updated: that is no action of a schedule. */
enum { SL_EVENT_OPTIMIZER = SL_ACTION_KINDS, SL_EVENT_KINDS };

/* A piece of work of kind F, B, I, W, REDUCE, UNSHARD, RESHARD or EVENT_OPTIMIZER; turns of the optimizer and gathers
 * that take no time are none. A RESHARD takes none. */
struct sl_event {
    int kind; /* enum sl_action_kind, and the above */
    int rank, stage, loop;
    /* The first microbatch and how many there are: a group's weight gradients are one event. */
    int microbatch, microbatches;
    double begin, end;
};

struct sl_simulated_rank {
    double busy;      /* time spent computing */
    double optimizer; /* time spent in the optimizer */
    double starved;   /* time by which it computed longer because others had the cores */
    double transfer;  /* time spent waiting for messages that had been sent */
    double gathering; /* time spent waiting for parameters that were being gathered */
    double end;       /* when its compute ends, and the optimizer's turns between actions */
    double reduced;   /* when its last reduction ends */
    double reducing;  /* time from `end` on that it waits for reductions */
    double updated;   /* when the optimizer's last turn ends */
    double bubble;    /* share of the pipeline's compute span in which it does not compute; it may update, though */
    int stash;        /* the most microbatches held at once, over all its loops */
};

struct sl_simulation {
    int ranks;
    double span;   /* from the begin of the first compute to the largest `end`, over all ranks */
    double step;   /* until the reductions and the optimizer have ended, too */
    double bubble; /* share of the span in which ranks have nothing to compute, over all of them */
    struct sl_simulated_rank *rank;
    int count;
    struct sl_event *event; /* NULL where none were asked for; sorted by time within each rank; its reductions, and its
                               gathers, among themselves */
};

/* Simulates a table, after proving it. SL_BAD_INPUT as by sl_schedule_check, or if a time is not from 0 to SL_MAX_COST,
 * or times are given for another number of stages. Free RESULT with sl_simulation_free. */
int sl_schedule_simulate(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                         struct sl_error *error);
/* The same without the list of events, which takes more memory than the table. */
int sl_schedule_time(const struct sl_schedule *lowered, const struct sl_costs *costs, struct sl_simulation *result,
                     struct sl_error *error);
void sl_simulation_free(struct sl_simulation *simulation);

SL_END_C
#endif
