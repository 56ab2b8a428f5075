/* update.h - what happens to a loop's gradients once they are complete: they are summed over data, the optimizer uses
 * them, and the new values are gathered.
 *
 * Under overlap each loop is on its way while other loops compute: sl_updates_advance, called between actions, moves on
 * what can move and waits for nobody. Sums and gathers are calls of two groups, so that both keep their order whenever
 * which member comes to advance them. With ZeRO each member of the data axis updates its share; without, all do all.
 * What data shards needs neither sum nor gather. Tied parameters come last: their two stages' gradients are added up
 * first, then they go the same way. Where the gradients' norm is clipped, all sums are waited for before the first is
 * used: the norm is that of all gradients of the mesh, each shard counted once. */
#ifndef SL_LAYERS_TRAINING_UPDATE_H
#define SL_LAYERS_TRAINING_UPDATE_H

#include "collectives/collectives.h"
#include "layers/modules/profile.h"
#include "layers/training/optimizer.h"
#include "layers/training/trace.h"

SL_BEGIN_C

/* Calls of a group under way at once. */
enum { SL_UPDATES_IN_FLIGHT = 4 };

struct sl_updates {
    struct sl_spmd *self;
    struct sl_parameters *parameters;
    const struct sl_kernels *kernels;
    const struct sl_optimizer_options *optimizer;
    struct sl_group sums, gathers; /* over data */
    struct sl_group world;
    struct sl_group ends; /* the stages that share tied parameters, where they are two coordinates; else of size 0 */
    bool zero, overlap;
    float clip;                 /* the largest norm of all gradients together; 0: any */
    double norm;                /* of the last step's gradients, where it is clipped */
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    int64_t step;
    /* Ranges in the order in which they were completed; how many of them have come how far. */
    int *completed; /* [ranges] */
    int completions, started, summed, used, ended;
    double *began; /* [ranges] when each one's sum was started */
    struct sl_request sum[SL_UPDATES_IN_FLIGHT], gather[SL_UPDATES_IN_FLIGHT];
};

/* Opens the groups over DATA_AXIS and the world. The caller has filled in what is above them. Free with
 * sl_updates_close. */
int sl_updates_open(struct sl_updates *updates, const char *data_axis, int loops);
/* Collective over the mesh: FIRST and LAST are this coordinate's pipeline's ends. Whose parameters are tied, if any. */
int sl_updates_tie(struct sl_updates *updates, int first, int last);
/* Also after a failure: sees off calls under way, which peers may still read from. */
void sl_updates_close(struct sl_updates *updates);

/* LOOP's gradients are complete. */
int sl_updates_complete(struct sl_updates *updates, int loop);
int sl_updates_advance(struct sl_updates *updates);
/* Waits until all loops that were completed, and what is tied, have their new values. */
int sl_updates_finish(struct sl_updates *updates);

SL_END_C
#endif
