/* update.h - updates a loop's parameters once its gradients are complete: gradients are summed over data, the optimizer
 * uses the sums, and the new values are gathered.
 *
 * If coordinates read their peers' memory, nothing is copied: after a barrier over data, each member adds up its part
 * of the gradients while the optimizer uses the sum, and writes the new values, which all members hold together. A
 * second barrier comes before members use the new values or compute other gradients.
 *
 * With overlap, these steps run while other loops compute: sl_updates_advance, called between actions, does all work
 * possible without waiting. Sums and gathers are calls of two different groups, so the order of calls within each group
 * does not depend on when a member calls sl_updates_advance. With ZeRO each member of the data axis updates its own
 * part of a range; without it, every member updates all of the range. Ranges sharded over data need neither sum nor
 * gather.
 *
 * Gradients may have rooms, used by loops, or layers of a loop, one after another (sl_range.room); a member then holds
 * only its part of a sum. A sum is made as soon as its loop is complete, or at the latest when the next loop needs the
 * room.
 *
 * Tied parameters come last: the gradients of their two stages are added up, then they are treated as all others. With
 * leaves (layers/training/exact/leaves.h), gradients are summed in the order of a tree over all leaves of the mesh,
 * which does not depend on the size of data; the bits of the norm do not depend on the order either.
 *
 * If the gradients' norm is clipped, all sums are complete before the first is used, because the norm is that of all
 * gradients of the mesh; each shard counts once. */
#ifndef SL_LAYERS_TRAINING_UPDATE_H
#define SL_LAYERS_TRAINING_UPDATE_H

#include "collectives/collectives.h"
#include "layers/modules/calls/profile.h"
#include "layers/training/exact/leaves.h"
#include "layers/training/optimizers/optimizer.h"
#include "spmd/trace.h"

SL_BEGIN_C

/* The most calls of one group under way at the same time. */
enum { SL_UPDATES_IN_FLIGHT = 4 };

/* A range with a complete gradient or, if a layer has several sums over data in a step, with a complete part of it. */
struct sl_completion {
    int range;
    bool adds, more; /* adds: the sum is added to those of earlier parts; more: parts follow */
    double began;    /* start of its sum, in seconds on sl_now's clock */
};

struct sl_updates {
    struct sl_spmd *self;
    struct sl_parameters *parameters;
    const struct sl_kernels *kernels;
    const struct sl_optimizer_options *optimizer;
    struct sl_group sums, gathers; /* both over data */
    struct sl_group world;
    /* The coordinates with the same tied parameters; of size 0 if there are no others. */
    struct sl_group tied;
    const char *context_axis; /* set before opening if sequences have leaves; otherwise NULL */
    struct sl_group sharing;  /* the coordinates with the same sequences, along that axis */
    bool zero, overlap;
    struct sl_sums *totals;         /* device memory for kernels' sums; may be NULL without clip */
    const struct sl_leaves *leaves; /* this coordinate's leaves; NULL: gradients are one sum, by coordinates */
    float clip;                     /* limit on the norm of all gradients together; 0: no limit */
    double norm;                    /* norm of the last step's gradients, if clipped */
    /* [sums.size] addresses of the data members' parameter memory, which all members lay out alike. NULL, unless the
     * optimizer reads and adds up their gradients in place. */
    const float **memory;
    /* looks: check a few gradients for non-finite values. lost: a non-finite value was found; parameters not updated
     * yet in this step then stay unchanged, so that the step can run again. The caller clears lost before a step. */
    bool looks, lost;
    bool apart;                 /* the last step's sums have not been stored: the optimizer added the gradients while it
                                   used them */
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    struct sl_prints *prints;   /* hashes of gradients and new values; NULL: this step has none */
    int64_t step;               /* number of the step, from 1 */
    /* Completed gradients, in the order of completion, and how many of them are complete, have a started sum, are
     * summed, have been used by the optimizer, have ended. */
    struct sl_completion *completed; /* [ranges, sums per range] */
    int *times;                      /* [ranges] completions of each range in this step */
    int completions, started, summed, used, ended;
    int layer; /* the part whose gradients are being computed in a room: a layer, numbered as a loop of the parameters;
                  0: none */
    struct sl_request sum[SL_UPDATES_IN_FLIGHT], gather[SL_UPDATES_IN_FLIGHT];
};

/* Opens the groups over DATA_AXIS and over all coordinates. Before, the caller sets self, parameters, kernels,
 * optimizer, zero, overlap, clip and looks; profile and trace may be set later. Collective over the mesh. Free with
 * sl_updates_close. */
int sl_updates_open(struct sl_updates *updates, const char *data_axis);
/* Opens the group of the COUNT coordinates of this pipeline with the same tied parameters, in the order of their
 * stages. Collective over the mesh. */
int sl_updates_tie(struct sl_updates *updates, int count, const int *coordinates);
/* Finds out whether peers' gradients can be read, and their addresses. Call it once the parameters have memory.
 * Collective over data. */
int sl_updates_meet(struct sl_updates *updates);
/* Waits for calls under way, because peers may still read from their memory, and frees the groups and lists. May be
 * called after a failure. */
void sl_updates_close(struct sl_updates *updates);

/* Waits until earlier gradients in the room of PART have been summed. PART is a loop of the parameters. Call it before
 * the first gradient of PART in a step; for a layer with several sums, before the first gradient of each sum. The layer
 * before is then complete. */
int sl_updates_make_room(struct sl_updates *updates, int part);
/* Reports that the gradients of LOOP, including its layers, are complete. */
int sl_updates_complete(struct sl_updates *updates, int loop);
/* Reports that the gradients of leaf LEAF are complete, for all loops and the tied parameters, and that more leaves
 * follow. Collective over the coordinates with the same tied parameters. */
int sl_updates_end_leaf(struct sl_updates *updates, int leaf);
/* Divisor of the sums: the members of data, or all leaves. */
double sl_updates_parts(const struct sl_updates *updates);
/* With overlap, does all work possible without waiting; else nothing. */
int sl_updates_advance(struct sl_updates *updates);
/* Waits until all complete loops and the tied parameters have their new values. Collective over the mesh. */
int sl_updates_finish(struct sl_updates *updates);
/* Sums the gradients of the last step if this has not been done; each member's part of a range then has the sum.
 * Collective over data. */
int sl_updates_sum(struct sl_updates *updates);

SL_END_C
#endif
