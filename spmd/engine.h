/* engine.h - what an engine implements: the one interface between programs and the wires.
 *
 * Engines live in collectives/, each behind one struct sl_engine_table. Users call
 * collectives/collectives.h and collectives/channel.h, which check arguments and come here.
 *
 * Every moving of data is one shape: member i sends member j a block of count[0] x count[1] runs of count[2] contiguous
 * elements. In the sender's input the block for peer j begins at j * input_view.peer, in the receiver's output the
 * block from peer i begins at i * output_view.peer; rows of runs lie stride[0], runs stride[1] apart. All in elements.
 * So a gather along any dim, a scatter and a transposing exchange need no packing where memory is shared. */
#ifndef SL_SPMD_ENGINE_H
#define SL_SPMD_ENGINE_H

#include "spmd/base/dtype.h"
#include "spmd/spmd.h"

SL_BEGIN_C

/* Coordinates that communicate together, in the order in which sums are taken. Filled in by sl_group_axes or
 * sl_group_list; its storage is the caller's, the communicator is the engine's and lives until sl_group_close, or
 * until the run ends. */
struct sl_group {
    int size;
    int rank; /* this coordinate's position in member, or -1: not a member */
    int member[SL_MAX_COORDINATES];
    char name[48]; /* for verdicts: "data", "data,model", "{0,3}" */
    void *communicator;
};

enum sl_operation {
    SL_BARRIER,
    SL_PPERMUTE,     /* out = the block of peer `source`, zeros where source is -1 */
    SL_PSUM,         /* out = sum of in over the group, in member order */
    SL_PMAX,         /* out = elementwise maximum; a NaN anywhere gives NaN */
    SL_PSUM_SCATTER, /* out = sum over members of their block for this one */
    SL_ALL_GATHER,   /* out = the blocks of all members */
    SL_ALL_TO_ALL,   /* out = from each member its block for this one */
    SL_BROADCAST,    /* out = the root's in */
    SL_GATHER,       /* out at the root = the blocks of all members; elsewhere untouched */
    SL_OPERATIONS
};

/* How an operation combines the blocks that come to a member, in member order. */
enum sl_reduction {
    SL_NO_REDUCTION, /* each has a place of its own */
    SL_SUM,
    SL_MAXIMUM
};

struct sl_view {
    size_t peer;
    size_t stride[2];
};

struct sl_collective {
    enum sl_operation operation;
    const struct sl_group *group;
    enum sl_dtype dtype;
    const void *input;
    void *output;
    size_t count[3];
    struct sl_view input_view, output_view;
    float scale;      /* PSUM, PSUM_SCATTER: float sums are multiplied by it (pmean); 1 otherwise */
    int source;       /* PPERMUTE: the member this one receives from, -1: none */
    int destination;  /* PPERMUTE: the member this one sends to, -1: none */
    int root;         /* BROADCAST, GATHER: position in the group */
    const char *site; /* "file:line" of the call */
};

/* A collective under way; storage is the caller's, and so are input and output, until sl_wait returns. */
struct sl_request {
    struct sl_collective call;
    uint32_t ticket; /* the engine's own, and so is: */
    bool moved;      /* this member has done its share */
};

/* One-way, first in first out, from coordinate FROM to coordinate TO (which may be the same). */
struct sl_channel {
    int from, to;
    size_t bytes; /* of a slot */
    int slots;
    const char *site;
    void *state;
};

struct sl_engine_table {
    const char *name;
    const char *missing; /* NULL, or the CMake option that builds it: then the functions are absent */
    bool apart;          /* coordinates are processes and share no memory */
    /* NULL, or what the engine is where a launcher has started several processes: NULL, or a table of its own. */
    const struct sl_engine_table *(*launched)(void);
    /* NULL, or joins the processes that have been started together with this one. */
    int (*open)(struct sl_error *error);
    /* NULL, or whether this process, of those, is the one that prints and writes files. */
    bool (*speaks)(void);
    int (*run)(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);
    /* Collective over the mesh: every coordinate opens the same groups in the same order, members or not. */
    int (*group_open)(struct sl_spmd *self, struct sl_group *group);
    /* By a member, when none of its calls is under way. SITE is where it closes the group. */
    int (*group_close)(struct sl_spmd *self, struct sl_group *group, const char *site);
    int (*start)(struct sl_spmd *self, struct sl_request *request);
    int (*test)(struct sl_spmd *self, struct sl_request *request, bool *done);
    int (*wait)(struct sl_spmd *self, struct sl_request *request);
    /* Called by both ends; the n-th opening of a pair at one end meets the n-th at the other. Does not wait. */
    int (*channel_open)(struct sl_spmd *self, struct sl_channel *channel);
    int (*channel_acquire)(struct sl_spmd *self, struct sl_channel *channel, void **slot);
    int (*channel_post)(struct sl_spmd *self, struct sl_channel *channel);
    int (*channel_take)(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
    int (*channel_release)(struct sl_spmd *self, struct sl_channel *channel);
    /* "Still here": beats, moves communication on, and returns SL_FAILED once the run has been aborted. */
    int (*progress)(struct sl_spmd *self);
};

SL_END_C
#endif
