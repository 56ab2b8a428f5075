/* study.h - a schedule and its analysis: a proof that it runs, its number of buffers, and its time. */
#ifndef SL_DRIVERS_SCHEDULE_STUDY_H
#define SL_DRIVERS_SCHEDULE_STUDY_H

#include "spmd/schedule/simulate.h"

/* A model on ranks, for studying schedules. */
struct schedule_model {
    int stages, microbatches;   /* number of ranks, and of parts of a batch */
    int loops;                  /* stages of each rank, 0: the schedule's default; if a schedule cannot have so many, it
                                 * has the largest smaller number that it can */
    int buffers, group;         /* arguments of schedule_study_prove */
    struct sl_stage_costs cost; /* of a stage if a rank has LOOPS stages; if it has fewer, they are larger */
    double communication;
    bool overlap;
    int cores; /* shared by the ranks; 0: a core per rank */
};

/* Zero-initialize. */
struct schedule_study {
    struct sl_schedule schedule;
    int buffers;                 /* limit of waiting messages between two ranks */
    struct sl_stage_costs *cost; /* [stages] */
    struct sl_simulation simulation;
};

/* Lowers the schedule, and proves it with BUFFERS (0: the smallest sufficient number, at least 2) and weight
 * gradients in groups of GROUP microbatches (0: none). SL_BAD_INPUT tells why it does not run. */
int schedule_study_prove(struct schedule_study *study, int buffers, int group, struct sl_error *error);

/* Allocates `cost`, and fills it with a copy of COST for each stage. */
int schedule_study_costs(struct schedule_study *study, const struct sl_stage_costs *cost, struct sl_error *error);
/* Sets `cost` from the model's PARTS parts, divided equally among the stages of each copy. */
void schedule_study_join(struct schedule_study *study, const struct sl_stage_costs *part, int parts);

/* Returns the largest number of microbatches that a rank holds at once. */
int schedule_study_kept(const struct schedule_study *study);

/* Frees the ranks' actions only. */
void schedule_study_forget_actions(struct schedule_study *study);

void schedule_study_free(struct schedule_study *study);

#endif
