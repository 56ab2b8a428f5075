/* scatters.h - gradients of kernels that are sharded over data (FSDP), scattered while the next ones are computed.
 *
 * A coordinate computes a kernel's whole gradient from its own rows, and keeps its shard of the sum over data. So that
 * nobody waits for the slowest each time, there is room for several whole gradients: the sum of one goes on while the
 * next one is computed. The sums have a group of their own, so that modules may communicate over data meanwhile.
 *
 * Where coordinates read their peers' memory, each adds the members' gradients to its shard in one pass, once all have
 * theirs. A member reads a gradient before it says that its next one is there, and everyone has heard that before the
 * room is used again. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_SCATTERS_H
#define SL_LAYERS_MODULES_PARAMETERS_SCATTERS_H

#include "collectives/collectives.h"
#include "layers/kernels/kernels.h"

SL_BEGIN_C

enum { SL_SCATTERS = 3 }; /* gradients that have room */

struct sl_scatter {
    float *whole, *sum; /* room for the largest kernel, and for the largest shard unless peers are read */
    bool under_way;
    struct sl_request request; /* of the sum, or of what says that all members have their gradients */
    size_t rows, columns;      /* of the shard */
    bool accumulate;           /* it is added to what is there */
    float *gradient;           /* [rows, columns] */
};

struct sl_scatters {
    struct sl_group group;
    bool reads;          /* members read their peers' memory */
    size_t whole, shard; /* floats of the largest kernel and shard, rounded up to cache lines */
    float *memory;
    const float *peer[SL_MAX_COORDINATES]; /* where the members' memory begins, if it is read */
    struct sl_scatter scatter[SL_SCATTERS];
    int next; /* whose room the next gradient has */
};

/* Prepares for sums over AXIS. Collective over the mesh. Free with sl_scatters_close, also after a failure. */
int sl_scatters_plan(struct sl_scatters *scatters, struct sl_spmd *self, const char *axis);
/* There is a kernel of WHOLE floats. Call it for all of them before sl_scatters_open. */
void sl_scatters_add(struct sl_scatters *scatters, size_t whole);
/* Bytes that sl_scatters_open will take. */
size_t sl_scatters_bytes(const struct sl_scatters *scatters);
/* Takes the memory, and counts it in HELD. */
int sl_scatters_open(struct sl_scatters *scatters, struct sl_spmd *self, struct sl_budget *held);
/* Waits for sums that are under way, and for peers that still read. Collective over the axis. */
void sl_scatters_close(struct sl_scatters *scatters, struct sl_spmd *self);

/* *WHOLE: where the next kernel's gradient is to be computed. Waits until its room is free. */
int sl_scatters_room(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels,
                     float **whole);
/* Starts to scatter the gradient [ROWS, COLUMNS] that lies there over its columns: this member's are written to
 * GRADIENT, or added to it if ACCUMULATE is set. GRADIENT is right after sl_scatters_end. Collective over the axis. */
int sl_scatters_start(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels, size_t rows,
                      size_t columns, bool accumulate, float *gradient);
/* Waits for all sums. */
int sl_scatters_end(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels);

SL_END_C
#endif
