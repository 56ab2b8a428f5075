/* scatters.h - gradients of kernels sharded over data (FSDP), scattered while the next ones are computed.
 *
 * A coordinate computes a kernel's whole gradient from its own rows, and stores its shard of the sum over data. The
 * gradients lie in a ring with room for the largest ones and many small ones. A sum can then run while the next
 * gradients are computed, and coordinates do not wait for the slowest each time. The ring is not larger than the memory
 * saved by sharding, unless one gradient needs more. The sums have groups of their own, so modules may communicate over
 * data meanwhile.
 *
 * If coordinates read their peers' memory, each coordinate adds the members' gradients to its shard in one pass, once
 * all members have computed them. It then reports that it has read them; when all members have reported, the room is
 * free. Sums of four and more members in tree order (sl_psum_scatter_tree_dim) are calls on every engine. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_SCATTERS_H
#define SL_LAYERS_MODULES_PARAMETERS_SCATTERS_H

#include "collectives/collectives.h"
#include "layers/kernels/kernels.h"

SL_BEGIN_C

enum {
    SL_SCATTERS = SL_MAX_IN_FLIGHT, /* limit of unfinished gradients */
    SL_SCATTERS_LARGEST = 4         /* number of the largest gradients for which the ring has room */
};

struct sl_scatter {
    size_t at, size;                 /* its room: floats of the ring */
    struct sl_request request, read; /* request: of the sum or, for reads, until all members have computed their
                                        gradients; read: until all members have read them */
    size_t rows, columns;            /* rows and columns of the shard */
    bool accumulate;                 /* add to the gradient instead of overwriting it */
    float *gradient;                 /* [rows, columns] */
};

struct sl_scatters {
    struct sl_group group, readers; /* both over the axis */
    bool tree;                      /* sums are in tree order, different from the members' order */
    bool reads;                     /* members read their peers' memory */
    size_t largest;                 /* floats of the largest kernel's room */
    size_t saved;                   /* floats saved by sharding gradients */
    size_t capacity;                /* floats of the ring */
    float *memory;
    const float **peer;                     /* [members]: addresses of their memory, for reads */
    struct sl_scatter scatter[SL_SCATTERS]; /* gradient n has entry n % SL_SCATTERS */
    size_t next;                            /* begin of the next room in the ring */
    int started, summed, freed;             /* number of gradients that have reached each state */
};

/* Prepares for sums over AXIS, in the order of the members or, with TREE, of psum_tree. Collective over the mesh. Free
 * with sl_scatters_close, also after a failure. */
int sl_scatters_plan(struct sl_scatters *scatters, struct sl_spmd *self, const char *axis, bool tree);
/* Adds a kernel of WHOLE floats. Call it for all kernels before sl_scatters_open. */
void sl_scatters_add(struct sl_scatters *scatters, size_t whole);
/* Bytes allocated by sl_scatters_open. */
size_t sl_scatters_bytes(const struct sl_scatters *scatters);
/* Allocates the memory, and counts it in HELD. */
int sl_scatters_open(struct sl_scatters *scatters, struct sl_spmd *self, struct sl_budget *held);
/* Waits for unfinished sums, and until peers have read this member's gradients. Collective over the axis. */
void sl_scatters_close(struct sl_scatters *scatters, struct sl_spmd *self);

/* Sets *WHOLE to memory for the next kernel's gradient, of FLOATS floats. Waits until this room is free. */
int sl_scatters_room(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels,
                     size_t floats, float **whole);
/* Starts to scatter the gradient [ROWS, COLUMNS] in that memory over its columns: this member's columns are written to
 * GRADIENT or, if ACCUMULATE is set, added to it. GRADIENT is complete after sl_scatters_end. Collective over the
 * axis. */
int sl_scatters_start(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels, size_t rows,
                      size_t columns, bool accumulate, float *gradient);
/* Waits for all sums. */
int sl_scatters_end(struct sl_scatters *scatters, struct sl_spmd *self, const struct sl_kernels *kernels);

SL_END_C
#endif
