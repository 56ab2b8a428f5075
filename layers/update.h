/* update.h - what happens to a loop's gradients once they are complete: they are summed over data, the optimizer uses
 * them, and the new values are gathered.
 *
 * Under overlap each loop is on its way while other loops compute: sl_updates_advance, called between actions, moves on
 * what can move and waits for nobody. Sums and gathers are calls of two groups, so that both keep their order whenever
 * which member comes to advance them. With ZeRO each member of the data axis updates its share; without, all do all. */
#ifndef SL_LAYERS_UPDATE_H
#define SL_LAYERS_UPDATE_H

#include "collectives/collectives.h"
#include "layers/adamw.h"
#include "layers/profile.h"
#include "layers/trace.h"

SL_BEGIN_C

/* Calls of a group under way at once. */
enum { SL_UPDATES_IN_FLIGHT = 4 };

struct sl_updates {
    struct sl_spmd *self;
    struct sl_parameters *parameters;
    const struct sl_kernels *kernels;
    const struct sl_adamw *adamw;
    struct sl_group sums, gathers; /* over data */
    bool zero, overlap;
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    int64_t step;
    /* Loops in the order in which they were completed; how many of them have come how far. */
    int *completed; /* [loops] */
    int completions, started, used, ended;
    double *began; /* [loops] when each one's sum was started */
    struct sl_request sum[SL_UPDATES_IN_FLIGHT], gather[SL_UPDATES_IN_FLIGHT];
};

/* Opens the groups over DATA_AXIS. The caller has filled in what is above them. Free with sl_updates_close. */
int sl_updates_open(struct sl_updates *updates, const char *data_axis, int loops);
/* Also after a failure: sees off calls under way, which peers may still read from. */
void sl_updates_close(struct sl_updates *updates);

/* LOOP's gradients are complete. */
int sl_updates_complete(struct sl_updates *updates, int loop);
int sl_updates_advance(struct sl_updates *updates);
/* Waits until all loops that were completed have their new values. */
int sl_updates_finish(struct sl_updates *updates);

SL_END_C
#endif
