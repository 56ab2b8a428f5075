/* scatters.h - gradients of kernels that are sharded over data (FSDP), scattered while the next ones are computed.
 *
 * A coordinate computes a kernel's whole gradient from its own rows, and keeps its shard of the sum over data. The
 * gradients lie in a ring that has room for the largest ones and many small ones, so that the sum of one goes on while
 * the next ones are computed, and nobody waits for the slowest each time; but not for more than the shards save, unless
 * one gradient needs it. The sums have groups of their own, so that
 * modules may communicate over data meanwhile.
 *
 * Where coordinates read their peers' memory, each adds the members' gradients to its shard in one pass, once all have
 * theirs. Then it says that it has read them; when all have, the room is free. Sums of four and more members in the
 * order of a tree (sl_psum_scatter_tree_dim) are calls on every engine. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_SCATTERS_H
#define SL_LAYERS_MODULES_PARAMETERS_SCATTERS_H

#include "collectives/collectives.h"
#include "layers/kernels/kernels.h"

SL_BEGIN_C

enum {
    SL_SCATTERS = SL_MAX_IN_FLIGHT, /* gradients under way at most */
    SL_SCATTERS_LARGEST = 4         /* of the largest there is room for so many */
};

struct sl_scatter {
    size_t at, size;                 /* its room: floats of the ring */
    struct sl_request request, read; /* of the sum, or of what says that all members have their gradients; of what says
                                        that all have read them */
    size_t rows, columns;            /* of the shard */
    bool accumulate;                 /* it is added to what is there */
    float *gradient;                 /* [rows, columns] */
};

struct sl_scatters {
    struct sl_group group, readers; /* both over the axis */
    bool tree;                      /* sums are in the order of a tree that is not the members' */
    bool reads;                     /* members read their peers' memory */
    size_t largest;                 /* floats of a kernel's room */
    size_t saved;                   /* floats that gradients take less as they are sharded */
    size_t capacity;                /* floats of the ring */
    float *memory;
    const float **peer;                     /* [members]: where their memory begins, if it is read */
    struct sl_scatter scatter[SL_SCATTERS]; /* gradient n has place n % SL_SCATTERS */
    size_t next;                            /* where in the ring the next one may begin */
    int started, summed, freed;             /* gradients that have come so far */
};

/* Prepares for sums over AXIS, in the order of the members or, with TREE, in that of psum_tree. Collective over the
 * mesh. Free with sl_scatters_close, also after a failure. */
int sl_scatters_plan(struct sl_scatters *scatters, struct sl_spmd *self, const char *axis, bool tree);
/* There is a kernel of WHOLE floats. Call it for all of them before sl_scatters_open. */
void sl_scatters_add(struct sl_scatters *scatters, size_t whole);
/* Bytes that sl_scatters_open will take. */
size_t sl_scatters_bytes(const struct sl_scatters *scatters);
/* Takes the memory, and counts it in HELD. */
int sl_scatters_open(struct sl_scatters *scatters, struct sl_spmd *self, struct sl_budget *held);
/* Waits for sums that are under way, and for peers that still read. Collective over the axis. */
void sl_scatters_close(struct sl_scatters *scatters, struct sl_spmd *self);

/* *WHOLE: where the next kernel's gradient, of FLOATS floats, is to be computed. Waits until its room is free. */
int sl_scatters_room(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels,
                     size_t floats, float **whole);
/* Starts to scatter the gradient [ROWS, COLUMNS] that lies there over its columns: this member's are written to
 * GRADIENT, or added to it if ACCUMULATE is set. GRADIENT is right after sl_scatters_end. Collective over the axis. */
int sl_scatters_start(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels, size_t rows,
                      size_t columns, bool accumulate, float *gradient);
/* Waits for all sums. */
int sl_scatters_end(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels);

SL_END_C
#endif
