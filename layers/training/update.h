/* update.h - what happens to the gradients of a loop when they are complete: they are summed over data, the optimizer
 * uses the sums, and the new values are gathered.
 *
 * Where coordinates read their peers' memory, nothing is moved: once the members of data have met, each adds up its
 * part of their gradients while the optimizer uses the sum, and writes the new values, which all members hold together.
 * They meet again before they use these, or compute other gradients.
 *
 * With overlap, these steps go on while other loops compute: sl_updates_advance, called between actions, does what can
 * be done without waiting. Sums and gathers are calls of two different groups, so that each keeps its order no matter
 * when a member calls sl_updates_advance. With ZeRO each member of the data axis updates its own part of a range;
 * without, every member updates all of it. Ranges that are sharded over data need neither sum nor gather.
 *
 * Gradients may have rooms that loops, or layers of a loop, use one after another (sl_range.room); then a member keeps
 * its part of a sum alone. A sum is made as soon as its loop is complete, or at the latest when the next one needs the
 * room.
 *
 * Tied parameters come last: first the gradients of their two stages are added up, then they are treated as the others.
 * With leaves (layers/training/exact/leaves.h) gradients are summed in the order of a tree over all leaves of the mesh,
 * whatever the size of data is, and their norm is one that no order changes.
 *
 * If the gradients' norm is clipped, all sums are waited for before the first is used, because the norm is that of all
 * gradients of the mesh; each shard counts once. */
#ifndef SL_LAYERS_TRAINING_UPDATE_H
#define SL_LAYERS_TRAINING_UPDATE_H

#include "collectives/collectives.h"
#include "layers/modules/profile.h"
#include "layers/training/exact/leaves.h"
#include "layers/training/optimizer.h"
#include "layers/training/trace.h"

SL_BEGIN_C

/* The most calls of one group that are under way at once. */
enum { SL_UPDATES_IN_FLIGHT = 4 };

/* A range whose gradient is complete, or, where a layer has several sums over data in a step, a part of it. */
struct sl_completion {
    int range;
    bool adds, more; /* its sum is added to that of parts before; parts follow */
    double began;    /* when its sum was started, in seconds on sl_now's clock */
};

struct sl_updates {
    struct sl_spmd *self;
    struct sl_parameters *parameters;
    const struct sl_kernels *kernels;
    const struct sl_optimizer_options *optimizer;
    struct sl_group sums, gathers; /* both over data */
    struct sl_group world;
    /* The coordinates that have the same tied parameters as this one; of size 0 if no other one has. */
    struct sl_group tied;
    bool zero, overlap;
    struct sl_sums *totals;         /* where kernels add up; may be NULL without clip */
    const struct sl_leaves *leaves; /* of this coordinate; NULL: gradients are one sum, in the order of coordinates */
    float clip;                     /* the largest norm of all gradients together; 0: no limit */
    double norm;                    /* norm of the last step's gradients, if it is clipped */
    /* Where the parameters' memory of the members of data begins, which is laid out alike, if the optimizer adds up
     * their gradients where they lie, [sums.size]; else NULL. */
    const float **memory;
    /* Where gradients are not finite, as far as a look at a few of them tells, values that have not been updated yet in
     * this step stay as they are, so that it can be taken again. The caller clears it before a step. */
    bool looks, lost;
    bool apart;                 /* the last step's gradients have not been summed anywhere */
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    struct sl_prints *prints;   /* hashes of gradients and new values; NULL: there are none in this step */
    int64_t step;               /* number of the step, from 1 */
    /* In the order in which gradients became complete, and how many of them have come how far: complete, their sum
     * started, summed, used by the optimizer, ended. */
    struct sl_completion *completed; /* [ranges, their sums] */
    int *times;                      /* [ranges] how many of a range there have been in this step */
    int completions, started, summed, used, ended;
    int layer; /* whose gradients are being computed in a room: a loop of the parameters; 0: none */
    struct sl_request sum[SL_UPDATES_IN_FLIGHT], gather[SL_UPDATES_IN_FLIGHT];
};

/* Opens the groups over DATA_AXIS and over all coordinates. The caller has filled in self, parameters, kernels,
 * optimizer, zero, overlap, clip and looks, and may set profile and trace later. Collective over the mesh. Free with
 * sl_updates_close. */
int sl_updates_open(struct sl_updates *updates, const char *data_axis);
/* Opens the group of the COUNT coordinates of this one's pipeline that have the same tied parameters, in their stages'
 * order. Collective over the mesh. */
int sl_updates_tie(struct sl_updates *updates, int count, const int *coordinates);
/* Finds out whether and where peers' gradients can be read, once the parameters have their memory. Collective over
 * data. */
int sl_updates_meet(struct sl_updates *updates);
/* Waits for calls that are under way, because peers may still read from their memory, and frees what was opened. May be
 * called after a failure. */
void sl_updates_close(struct sl_updates *updates);

/* Before the first gradient of PART, a loop of the parameters, in a step, and before the first one of each of a layer's
 * sums: waits until others that were in its room have been summed. The layer before is complete. */
int sl_updates_make_room(struct sl_updates *updates, int part);
/* Says that the gradients of LOOP, its layers' included, are complete. */
int sl_updates_complete(struct sl_updates *updates, int loop);
/* Says that the gradients of all loops, and tied ones, are those of leaf LEAF, after which others come. Collective over
 * those who have the same tied parameters. */
int sl_updates_end_leaf(struct sl_updates *updates, int leaf);
/* What sums are to be divided by: the members of data, or all leaves. */
double sl_updates_parts(const struct sl_updates *updates);
/* Does with overlap what can be done without waiting; otherwise nothing. */
int sl_updates_advance(struct sl_updates *updates);
/* Waits until all complete loops and the tied parameters have their new values. Collective over the mesh. */
int sl_updates_finish(struct sl_updates *updates);
/* Sums the gradients of the last step where that has not been done: afterwards each member's part of a range has the
 * sum. Collective over data. */
int sl_updates_sum(struct sl_updates *updates);

SL_END_C
#endif
