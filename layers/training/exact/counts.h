/* counts.h - sums of metrics over the mesh. */
#ifndef SL_LAYERS_TRAINING_EXACT_COUNTS_H
#define SL_LAYERS_TRAINING_EXACT_COUNTS_H

#include "collectives/collectives.h"
#include "layers/modules/module.h"

SL_BEGIN_C

/* Sums of kernels in each pass of a step. They stay on the device until the last pass. */
struct sl_pass_sums {
    int passes;
    double *kept, *here; /* [passes, fields of struct sl_sums]: on the device, and for the host; NULL with one pass */
};

/* Allocates memory, counted in HELD. SL_FAILED if memory is short. Close it also then. */
int sl_pass_sums_open(struct sl_pass_sums *sums, int passes, struct sl_budget *held, struct sl_error *error);
void sl_pass_sums_close(struct sl_pass_sums *sums);
size_t sl_pass_sums_bytes(int passes);
/* Saves the sums in OF as the sums of PASS, in the queue's order. */
void sl_pass_sums_keep(struct sl_pass_sums *sums, int pass, const struct sl_sums *of);
/* Adds the passes' sums, in order, to METRICS [passes / each]: EACH consecutive passes to one entry. A single pass's
 * sums are read from OF. The host waits for the queue once. */
void sl_pass_sums_read(struct sl_pass_sums *sums, const struct sl_sums *of, int each, struct sl_metrics *metrics);

/* The coordinates that count, WORLD; each row is counted by COPIES of them. */
struct sl_counting {
    const struct sl_group *world;
    double copies;
    const char *data_axis, *context_axis; /* context_axis: one of the list data_axis, along which a leaf's rows lie too;
                                             or NULL */
};

/* Adds OWN to SUM, field by field. */
void sl_add_counts(struct sl_metrics *sum, const struct sl_metrics *own);
/* Sum of entry I over ALL [coordinates, count], in doubles: there may be more rows than a float can count. */
struct sl_metrics sl_sum_counts(const struct sl_counting *counting, const struct sl_metrics *all, size_t count,
                                size_t i);
/* Sums all leaves, in their order, into METRICS; this coordinate has OWN [count]. ALL [coordinates, count] is scratch.
 * Bits do not depend on how many coordinates share the leaves. Collective over the world. */
int sl_sum_leaves(struct sl_spmd *self, const struct sl_counting *counting, size_t count, const struct sl_metrics *own,
                  struct sl_metrics *all, struct sl_metrics *metrics);

SL_END_C
#endif
