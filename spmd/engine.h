/* engine.h - the interface an engine implements, between programs and the hardware that moves their data.
 *
 * Each engine is one struct sl_engine_table in collectives/. Programs call collectives/collectives.h and
 * collectives/channel.h, which check the arguments and then call the engine's functions.
 *
 * All data moves in one form: member i sends member j a block of count[0] rows of count[1] runs, each run of count[2]
 * contiguous elements. In the sender's input the block for member j begins at j * input_view.peer. In the receiver's
 * output the block from member i begins at i * output_view.peer. Rows are stride[0] apart, and the runs of a row
 * stride[1] apart. All of these numbers count elements. If memory is shared, a gather along any dim, a scatter and a
 * transposing exchange therefore need no packing.
 *
 * Besides the functions below, an engine must:
 *
 *  - run: fill in mesh, engine, coordinate, device and state of each struct sl_spmd before the program begins. Deliver
 *    the run's verdict through engine->error, or on stderr. Close the groups and channels still open.
 *  - start together: each process has a signature (spmd/signature.h): the build, the mesh, `checked`, and the entries
 *    of engine->signature. If the processes' signatures differ, end all processes with SL_BAD_INPUT before the program
 *    begins. The verdict reports differing keys, their texts and the coordinates (collectives/signatures.h).
 *  - wait for queues: before a peer can read data that this coordinate computes on its device, wait for the device's
 *    queue (sl_device.settle in spmd/device/device.h), or order the transfer behind it in a queue. The same holds for a
 *    posted or released slot. Threads' queues wait for each other (sl_device.mark, sl_device.follow). An engine may
 *    also refuse devices that do not share the host's memory, as mpi does.
 *  - count waiting: add the seconds in which calls wait for peers to self->waited while self->timed is set
 *    (sl_wait_begin, sl_wait_end). If the engine can, it splits these seconds (self->divides).
 *  - record the latest call, except openings of groups: its verb, its object (a group or a channel) and its site.
 *    Verdicts quote them.
 *  - publish sl_fail: if self->error has a status when a call begins, end the run with that status and message.
 *  - end for all: once the run has ended, every call returns SL_FAILED, and waiting calls return at once.
 *  - compare, if engine->checked is set: end the run if two members' calls differ (sl_calls_agree in
 *    collectives/verdict.h) before their data moves. No member starts a call before all have finished the call
 *    SL_MAX_IN_FLIGHT calls earlier. If engine->checked is not set, members that exchange data compare only a word of
 *    the call (sl_call_word), which costs next to nothing.
 *  - refuse misuse with SL_BAD_INPUT: more than SL_MAX_IN_FLIGHT calls under way, a second wait for a call, closing a
 *    group with calls under way, a post without acquire, a release without take.
 *  - end endless waits: end the run if it is proven, or decided after engine->timeout, that the peers deadlock, that a
 *    peer has returned from its program, or that it is absent (it has neither called, nor waited, nor called
 *    sl_progress). The verdict has the words of collectives/verdict.h.
 *  - release memory: when a call has ended, with SL_OK or because the run has ended, peers no longer read or write the
 *    caller's buffers. The caller may free them. */
#ifndef SL_SPMD_ENGINE_H
#define SL_SPMD_ENGINE_H

#include "spmd/base/numbers/dtype.h"
#include "spmd/spmd.h"

SL_BEGIN_C

/* Coordinates that communicate together, in the order in which sums are taken. sl_group_axes or sl_group_list fills in
 * the struct. The caller owns the struct. The engine owns the communicator, which lives until sl_group_close or the end
 * of the run. */
struct sl_group {
    int size;
    int rank;                  /* this coordinate's position among the members; -1: not a member */
    struct sl_members members; /* read them with sl_group_member; a list lives as long as the run */
    char name[48];             /* name in verdicts: "data", "data,model", "{0,3}" */
    void *communicator;
};

/* The coordinate at POSITION of GROUP. */
static inline int sl_group_member(const struct sl_group *group, int position) {
    return sl_member_at(&group->members, position);
}

enum sl_operation {
    SL_BARRIER,
    SL_PPERMUTE,     /* out = the block of member `source`; zeros if source is -1 */
    SL_PSUM,         /* out = sum of in over the group, in member order */
    SL_PSUM_TREE,    /* the same, in the order of a tree */
    SL_PMAX,         /* out = elementwise maximum; a NaN anywhere gives NaN */
    SL_PSUM_SCATTER, /* out = the sum of all members' blocks for this one */
    SL_SCATTER_TREE, /* the same, in the order of a tree */
    SL_ALL_GATHER,   /* out = the blocks of all members */
    SL_ALL_TO_ALL,   /* out = the block of each member for this one */
    SL_BROADCAST,    /* out = the root's in */
    SL_GATHER,       /* out at the root = the blocks of all members; elsewhere out is not written */
    SL_OPERATIONS
};

/* Traffic (spmd/traffic.h) is counted by operation; the last kind is that of channels. */
enum { SL_CHANNELS_TRAFFIC = SL_OPERATIONS, SL_TRAFFIC_KINDS };

enum { SL_SUM_BLOCK = 64 };

/* How an operation combines the blocks sent to a member, in member order. */
enum sl_reduction {
    SL_NO_REDUCTION, /* each block has its own place in the output */
    SL_SUM,          /* a sum in member order; if there are more than SL_SUM_BLOCK members, first of blocks of
                        SL_SUM_BLOCK, then, in the same way, of these sums */
    SL_TREE,         /* a sum in the order of a tree: sl_describe_psum_tree in collectives/collectives.h */
    SL_MAXIMUM
};

/* Positions of blocks in an array, in elements: see the top of this file. */
struct sl_view {
    size_t peer;
    size_t stride[2];
};

/* A call, as filled in by the functions of collectives/collectives.h. */
struct sl_collective {
    enum sl_operation operation;
    const struct sl_group *group;
    enum sl_dtype dtype;
    const void *input;
    void *output;
    size_t count[3];
    struct sl_view input_view, output_view;
    float scale;      /* PSUM, PSUM_SCATTER: factor of float sums (pmean); otherwise 1 */
    int source;       /* PPERMUTE: the member from which this one receives; -1: none */
    int destination;  /* PPERMUTE: the member to which this one sends; -1: none */
    int root;         /* BROADCAST, GATHER: position in the group */
    const char *site; /* "file:line" of the call */
};

/* A call under way. The caller owns the struct, the input and the output, and may not touch them until the call has
 * ended. */
struct sl_request {
    struct sl_collective call;
    uint32_t ticket; /* the engine's own: number of the call in its group */
    bool moved;      /* the engine's own: how far the call is */
};

/* A one-way queue of messages from coordinate FROM to coordinate TO; the two may be equal. */
struct sl_channel {
    int from, to;
    size_t bytes; /* bytes of a slot */
    int slots;
    const char *site;
    void *state;
};

/* A line between the members of a group, for an engine built on another one. Each member has a count, which begins with
 * 0 and only rises (modulo 2^32); it tells the others its count, and waits for theirs. A count may carry a
 * message. */
struct sl_engine_line {
    const struct sl_group *group; /* lives as long as this struct is used */
    int64_t number;               /* the same at all members; no two lines of a coordinate pair have the same number */
    size_t bytes;                 /* of a message */
    int kept;                     /* number of latest counts whose messages are kept; 0: counts have no messages */
    enum sl_operation kind;       /* set for each count: the kind of call under which its messages are counted */
    void *state;
};

/* In place of a position: all other members. They, and this member before it hears them, tell the count to all, without
 * a message. */
enum { SL_ALL_MEMBERS = -1 };

/* Returns the run's copy of a list of COUNT coordinates; equal lists share one copy. NULL without memory. */
const int *sl_list_kept(struct sl_spmd *self, int count, const int *coordinates);

/* The start of a wait for a peer. An engine calls sl_wait_begin before and sl_wait_end after the wait, to count it. */
struct sl_wait_mark {
    double began, cpu;
};

/* Returns the time at which the wait begins; zeros if self->timed is not set. */
static inline struct sl_wait_mark sl_wait_begin(const struct sl_spmd *self) {
    if (!self->timed) return (struct sl_wait_mark){0, 0};
    return (struct sl_wait_mark){sl_now(), sl_cpu_now()};
}

/* Returns the time at which the wait ended; 0 if self->timed is not set. */
static inline double sl_wait_end(struct sl_spmd *self, struct sl_wait_mark mark) {
    if (!self->timed) return 0;
    const double now = sl_now();
    self->waited += now - mark.began;
    self->waited_cpu += sl_cpu_now() - mark.cpu;
    return now;
}

struct sl_engine_table {
    const char *name;
    const char *missing; /* NULL: the engine is in this build; otherwise the CMake option that would build it, and the
                            functions are not set */
    bool apart;          /* coordinates are processes and share no memory */
    bool both_ends;      /* each end of a channel has slots of its own */
    /* NULL, or a function for launchers: if a launcher has started several processes, it returns the table to use
     * instead of this one, otherwise NULL. */
    const struct sl_engine_table *(*launched)(void);
    /* NULL, or joins the processes started together with this one. sl_engine_open calls it. If one of them stands still
     * for TIMEOUT seconds, or comes much later, the process may end with a line on stderr. */
    int (*open)(double timeout, struct sl_error *error);
    /* NULL, or returns whether this process, of several, is the one that prints and writes files. */
    bool (*speaks)(void);
    /* NULL, or returns whether this process reports why a run could not start: of several processes with the same
     * reason, one reports it. The answer may take a second. */
    bool (*reports)(void);
    /* Runs PROGRAM at each coordinate: see sl_run. PROGRAM opens the coordinate's device. */
    int (*run)(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);
    /* Fills in group->communicator. Collective over the mesh: every coordinate opens the same groups in the same order,
     * including groups without it (group->rank is -1). */
    int (*group_open)(struct sl_spmd *self, struct sl_group *group);
    /* Frees a member's communicator. Members call it when none of their calls is under way. SITE is the place of the
     * call. */
    int (*group_close)(struct sl_spmd *self, struct sl_group *group, const char *site);
    /* Starts request->call. May wait only in checked mode, or for room. */
    int (*start)(struct sl_spmd *self, struct sl_request *request);
    /* Advances the call without waiting; *DONE: whether the call has ended. */
    int (*test)(struct sl_spmd *self, struct sl_request *request, bool *done);
    /* Waits until the call has ended. */
    int (*wait)(struct sl_spmd *self, struct sl_request *request);
    /* Implements sl_gather_from; NULL: a coordinate cannot read its peers' memory. Does not wait. */
    int (*gather_from)(struct sl_spmd *self, const struct sl_collective *call, const void *const *input);
    /* The functions of the same names in collectives/collectives.h; NULL if gather_from is NULL. */
    int (*peers_begin)(struct sl_spmd *self, const char *site);
    void (*peers_end)(struct sl_spmd *self);
    int (*group_memory)(struct sl_spmd *self, const struct sl_group *group, size_t bytes, void **memory);
    /* Opens an end of a channel without waiting, and fills in channel->state. Both ends call it; the n-th opening of a
     * pair at one end meets the n-th at the other. A channel to oneself is opened once. If the ends differ in bytes or
     * slots, the run ends. */
    int (*channel_open)(struct sl_spmd *self, struct sl_channel *channel);
    /* These four implement the functions of the same names in collectives/channel.h. Acquire and take may wait. */
    int (*channel_acquire)(struct sl_spmd *self, struct sl_channel *channel, void **slot);
    int (*channel_post)(struct sl_spmd *self, struct sl_channel *channel);
    int (*channel_take)(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
    int (*channel_release)(struct sl_spmd *self, struct sl_channel *channel);
    /* Implements sl_channels_rest; NULL: this engine ignores it. */
    void (*channels_rest)(struct sl_spmd *self);
    /* Reports to peers that this coordinate is not absent, and advances communication. SL_FAILED if the run has
     * ended. */
    int (*progress)(struct sl_spmd *self);

    /* The functions below are for an engine built on this one: its calls wait in this engine's calls. If they are NULL,
     * no engine can be built on this one. */

    /* Begins a call of the engine built on this one: records the call's place. SL_FAILED once the run has ended. */
    int (*enter)(struct sl_spmd *self, const char *verb, const char *object, const char *site);
    /* Ends the run with STATUS and the coordinate's own message. */
    void (*give_up)(struct sl_spmd *self, int status);
    /* Ends the run with VERDICT. Any thread may call it while SELF's program runs. ABSENT: a coordinate for whose
     * return the end waits only a short time; -1: none. */
    void (*end)(struct sl_spmd *self, const struct sl_error *verdict, int absent);
    /* Returns whether a coordinate's process is visible from here and has ended. Any thread may call it. NULL: all
     * coordinates are in this process. */
    bool (*is_gone)(int coordinate);
    /* Opens this member's end of a line, without waiting. Returns NULL, or why it cannot be opened. The end of the run
     * closes all lines. */
    const char *(*line_open)(struct sl_spmd *self, struct sl_engine_line *line);
    /* Closes this member's end. Call it when all counts told to it have been heard. May wait. */
    int (*line_close)(struct sl_spmd *self, struct sl_engine_line *line);
    /* Tells other members that this member's count is COUNT: at least the members for which TO is set (NULL: all).
     * MESSAGE may be NULL. Does not wait; if the run ends, the count may not arrive. Counts without a message for all
     * may pass through other members: if a line has more than two members, hear these from SL_ALL_MEMBERS. */
    void (*line_tell)(struct sl_spmd *self, struct sl_engine_line *line, uint32_t count, const void *message,
                      const bool *to);
    /* If WAITS, waits until the member at POSITION, or SL_ALL_MEMBERS, has told COUNT; otherwise only looks for its
     * latest count. */
    int (*line_hear)(struct sl_spmd *self, struct sl_engine_line *line, int position, uint32_t count, bool waits);
    /* Returns whether COUNT of the member at POSITION, or of SL_ALL_MEMBERS, has been heard. Any thread may call it. If
     * there are two members, a first count is heard during any call of the engine. */
    bool (*line_heard)(const struct sl_engine_line *line, int position, uint32_t count);
    /* The message that went with a heard count. */
    const void *(*line_message)(const struct sl_engine_line *line, int position, uint32_t count);
};

SL_END_C
#endif
