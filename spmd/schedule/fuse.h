/* fuse.h - joins neighbouring microbatches into runs, so that weights travel once for several of them.
 *
 * A forward of a run is one product over the rows of all its microbatches; so is an input gradient. In exchange the
 * next stage waits longer for its first rows. What is joined is decided before the run, by the simulator: nothing is
 * ever waited for in the hope of a longer run. Fused or not, every row has the same bits. */
#ifndef SL_SPMD_SCHEDULE_FUSE_H
#define SL_SPMD_SCHEDULE_FUSE_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* Where a table will run. */
struct sl_fusing {
    int rows;        /* of a microbatch */
    int coordinates; /* that share the cores below: all of them, or those of one host */
    int cores;       /* 0: each coordinate has its own */
    int group;       /* runs divide groups of so many microbatches; 0: any will do */
};

/* Joins runs of RUN microbatches, [0, RUN), [RUN, 2 RUN), ..., of a table that has not been lowered, and gives the
 * actions new times. Each rank must have the forwards of a run next to each other in each loop, in ascending or
 * descending order, and its backwards (B or I) likewise: nothing is reordered. *FUSED says whether it is so; otherwise
 * the table stays as it is. Weight gradients of their own stay as they are. SL_FAILED if there is no memory. */
int sl_schedule_fuse(struct sl_schedule *schedule, int run, bool *fused, struct sl_error *error);

/* Joins the runs that take the least time by the simulator: a product of few rows takes as long as moving its weights,
 * and with coordinates that share cores only the work counts, otherwise also the bubble. SL_FAILED if there is no
 * memory. */
int sl_schedule_fuse_planned(struct sl_schedule *schedule, const struct sl_fusing *fusing, struct sl_error *error);

/* Whether the coordinates of one rank keep all cores busy. Then a rank that computes its weight gradients before it
 * hands on a gradient delays nobody: the previous rank would have no core. */
bool sl_schedule_crowds(const struct sl_schedule *schedule, const struct sl_fusing *fusing);

SL_END_C
#endif
