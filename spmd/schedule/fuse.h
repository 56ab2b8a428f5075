/* fuse.h - joins neighbouring microbatches into runs, to read weights once for several of them.
 *
 * A forward of a run is one product over the rows of all its microbatches; so is an input gradient. In exchange the
 * next stage waits longer for its first rows. The simulator decides about runs before the table runs: the executor
 * never waits in the hope of a longer run. Fused or not, every row has the same bits. */
#ifndef SL_SPMD_SCHEDULE_FUSE_H
#define SL_SPMD_SCHEDULE_FUSE_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* The conditions under which a table runs. */
struct sl_fusing {
    int rows;        /* rows of a microbatch */
    int coordinates; /* coordinates that share the cores below: all of them, or one host's */
    int cores;       /* 0: each coordinate has a core of its own */
    int group;       /* runs must divide groups of this many microbatches; 0: any length */
};

/* Joins runs of RUN microbatches, [0, RUN), [RUN, 2 RUN), ..., of a table before it is lowered, and sets new times. In
 * each loop, each rank must have the forwards of a run next to each other, in ascending or descending order, and its
 * backwards (B or I) likewise: the order does not change. If not, *FUSED is false and the table stays unchanged.
 * Separate weight gradients stay unchanged. SL_FAILED if there is no memory. */
int sl_schedule_fuse(struct sl_schedule *schedule, int run, bool *fused, struct sl_error *error);

/* Joins the runs that take the least time by the simulator: a product of few rows takes as long as reading its weights.
 * If coordinates share cores, the time is the larger of the work per core and the simulated span. SL_FAILED if there is
 * no memory. */
int sl_schedule_fuse_planned(struct sl_schedule *schedule, const struct sl_fusing *fusing, struct sl_error *error);

/* Whether the coordinates of one rank keep all cores busy. A rank may then compute its weight gradients before it sends
 * a gradient: the previous rank would have no core anyway. */
bool sl_schedule_crowds(const struct sl_schedule *schedule, const struct sl_fusing *fusing);

SL_END_C
#endif
