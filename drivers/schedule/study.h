/* study.h - a schedule and what is found out about it: that it runs, with how many buffers, and how long it takes. */
#ifndef SL_DRIVERS_SCHEDULE_STUDY_H
#define SL_DRIVERS_SCHEDULE_STUDY_H

#include "spmd/schedule/simulate.h"

/* A model on ranks, whose schedules are studied. */
struct schedule_model {
    int stages, microbatches;   /* ranks, and parts of a batch */
    int loops;                  /* stages of each rank, or as many of them as a schedule can have; 0: its default */
    int buffers, group;         /* as schedule_study_prove takes them */
    struct sl_stage_costs cost; /* of a stage where a rank has LOOPS; fewer loops have thicker stages */
    double communication;
    bool overlap;
    int cores; /* that ranks share; 0: each has one */
};

/* Zero-initialize. */
struct schedule_study {
    struct sl_schedule schedule;
    int buffers;                 /* messages that may wait between two ranks */
    struct sl_stage_costs *cost; /* [stages] */
    struct sl_simulation simulation;
};

/* Lowers the schedule, and proves it with BUFFERS (0: the fewest that are enough, at least 2) and weight gradients in
 * groups of GROUP microbatches (0: none). SL_BAD_INPUT says why it does not run. */
int schedule_study_prove(struct schedule_study *study, int buffers, int group, struct sl_error *error);

/* Makes `cost`, a copy of COST for each stage. */
int schedule_study_costs(struct schedule_study *study, const struct sl_stage_costs *cost, struct sl_error *error);
/* They become those of the model's PARTS parts, of which each copy's stages have equal shares. */
void schedule_study_join(struct schedule_study *study, const struct sl_stage_costs *part, int parts);

/* The most microbatches that a rank holds at once. */
int schedule_study_kept(const struct schedule_study *study);

/* Frees what ranks do, and keeps the rest. */
void schedule_study_forget_actions(struct schedule_study *study);

void schedule_study_free(struct schedule_study *study);

#endif
