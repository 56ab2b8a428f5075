/* counts.h - sums of metrics over the mesh, from what each coordinate has counted. */
#ifndef SL_LAYERS_TRAINING_EXACT_COUNTS_H
#define SL_LAYERS_TRAINING_EXACT_COUNTS_H

#include "collectives/collectives.h"
#include "layers/modules/module.h"

SL_BEGIN_C

/* What kernels have added up in each pass of a step: it stays on the device until the last one. */
struct sl_pass_sums {
    int passes;
    double *kept, *here; /* [passes, those of struct sl_sums]: on the device, and for the host; NULL with one pass */
};

/* Takes memory, which is counted in HELD. SL_FAILED without. Close it also then. */
int sl_pass_sums_open(struct sl_pass_sums *sums, int passes, struct sl_budget *held, struct sl_error *error);
void sl_pass_sums_close(struct sl_pass_sums *sums);
size_t sl_pass_sums_bytes(int passes);
/* What lies in OF is that of PASS, in the queue's order. */
void sl_pass_sums_keep(struct sl_pass_sums *sums, int pass, const struct sl_sums *of);
/* Adds the passes' sums, in their order, to METRICS [passes / each], EACH after the other to the same; those of a
 * single pass lie in OF. The host waits for the queue, once. */
void sl_pass_sums_read(struct sl_pass_sums *sums, const struct sl_sums *of, int each, struct sl_metrics *metrics);

/* Who counts: the coordinates of WORLD, of which so many COPIES count the same rows. */
struct sl_counting {
    const struct sl_group *world;
    double copies;
    const char *data_axis;
};

/* Adds OWN to SUM, field by field. */
void sl_add_counts(struct sl_metrics *sum, const struct sl_metrics *own);
/* METRICS: number I of ALL [coordinates, count], summed in doubles: there may be more rows than a float can count. */
struct sl_metrics sl_sum_counts(const struct sl_counting *counting, const struct sl_metrics *all, size_t count,
                                size_t i);
/* Collective over the world: METRICS, the sum of all leaves in their order, of which this coordinate has OWN [count];
 * ALL [coordinates, count] is room. The bits are the same however many coordinates share the leaves. */
int sl_sum_leaves(struct sl_spmd *self, const struct sl_counting *counting, size_t count, const struct sl_metrics *own,
                  struct sl_metrics *all, struct sl_metrics *metrics);

SL_END_C
#endif
