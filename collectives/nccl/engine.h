/* engine.h - inside the nccl engine: data goes by NCCL between the coordinates' GPUs.
 *
 * Who runs where, who waits for whom, and why a run cannot go on, is a matter of the hosts, as it is without GPUs: the
 * coordinates are threads of the local engine, or processes of the mpi engine, and tell each other there which calls
 * they have begun (struct sl_nccl_hosts). The host waits, in sl_wait, until its peers have begun the call; it does not
 * wait for the GPU. So a GPU waits only for what all hosts concerned have put into their queues, deadlocks and absent
 * peers are found, with their verdicts, before a GPU hangs in them, and to synchronize with a queue is safe.
 *
 * A communicator and its stream are a wire. A call goes into the wire's stream behind what is in the compute queue, and
 * sl_wait lets the compute queue wait for it. Memory that the device does not reach passes through buffers, and there
 * the host waits until the result has come.
 *
 * Communicators are used by their coordinate's thread, and by the watchdog, a thread a process (watch.c): it asks
 * them for errors, and, once the run has ended, aborts them: whatever waits in a queue then goes on. Hence the lock of
 * a wire. Nothing in NCCL blocks the host: communicators are opened as non-blocking ones and asked until they are
 * ready. */
#ifndef SL_COLLECTIVES_NCCL_ENGINE_H
#define SL_COLLECTIVES_NCCL_ENGINE_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/engines.h"
#include "collectives/verdict.h"
#include "spmd/device/cuda.h"

SL_BEGIN_C

struct sl_nccl_run;
struct sl_nccl_coordinate;
struct sl_nccl_group;
struct sl_nccl_channel;
struct sl_nccl_call;
struct sl_nccl_comparisons;
struct sl_nccl_owed;

/* ---- what hosts tell each other (threads.c, processes.c) ---- */

struct sl_nccl_hosts {
    const struct sl_engine_table *below; /* runs the programs */
    bool reuses; /* what is told of a call is known until its slot's next one begins, which waits for peers */
    struct sl_nccl_run *(*run_of)(const struct sl_spmd *self);
    int (*open)(struct sl_nccl_run *run);
    void (*close)(struct sl_nccl_run *run);
    /* Begins a call: notes the place, as sl_local_enter does. SL_FAILED once the run has ended. */
    int (*enter)(struct sl_nccl_coordinate *me, const char *verb, const char *object, const char *site);
    /* "Still here". SL_FAILED once the run has ended. */
    int (*progress)(struct sl_nccl_coordinate *me);
    /* Ends the run with STATUS and the coordinate's own message. */
    void (*give_up)(struct sl_nccl_coordinate *me, int status);
    /* The same for any thread, while ME's program runs. ABSENT: the coordinate that nobody need wait for, or -1. */
    void (*end)(struct sl_nccl_coordinate *me, const struct sl_error *verdict, int absent);
    /* Whether a coordinate's process is seen from here, and has ended; for any thread. NULL: all are this one. */
    bool (*is_gone)(int coordinate);

    /* Fills in the id of the communicator of all, who have come together. */
    int (*unique_id)(struct sl_nccl_coordinate *me, ncclUniqueId *id);
    int (*group_open)(struct sl_nccl_coordinate *me, struct sl_nccl_group *group);
    /* When all members have begun their last call. */
    int (*group_close)(struct sl_nccl_group *group);
    /* This member begins its call number TICKET; in checked mode it is compared with those of members that have begun,
     * and they with it, before it is enqueued: here, or in its stream: */
    int (*begin)(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket);
    /* Both NULL, or: enqueue the exchange of descriptions, and then what compares them and holds the stream up where
     * they differ. The wire is locked; in between NCCL has to be ready. */
    bool (*describe)(struct sl_nccl_group *group, struct sl_nccl_call *c);
    bool (*judge)(struct sl_nccl_group *group, struct sl_nccl_call *c);
    /* Whether, or waits until, the members that CALL needs have begun it, too. */
    bool (*met)(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket);
    int (*meet)(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket);

    /* Joins the channel's communicator, as soon as its id is known here. Does not wait. */
    int (*channel_open)(struct sl_nccl_channel *channel);
    /* Waits until the other end is open, and this one's communicator joined. */
    int (*channel_meet)(struct sl_nccl_channel *channel);
    /* At END, waits until the other one's count of messages, posted or released, is TARGET; raises END's. */
    int (*channel_wait)(struct sl_nccl_channel *channel, int end, uint32_t target);
    void (*channel_raise)(struct sl_nccl_channel *channel, int end, uint32_t count);
};

/* ---- a run (engine.c) ---- */

/* Memory that lasts until the run ends: to free it waits for everything on the device. */
struct sl_nccl_memory {
    struct sl_nccl_memory *next;
    void *memory;
    bool host;
};

struct sl_nccl_coordinate {
    struct sl_spmd *self;
    struct sl_nccl_run *run;
    struct sl_nccl_memory *memory;
    struct sl_nccl_group *world; /* of all coordinates, NULL before the first group */
    int opened;                  /* groups, as a member or not: the number is the same everywhere */
    struct sl_nccl_group *groups;
    struct sl_nccl_buffer *device, *pinned; /* of groups that have been closed, for those that are opened */
    struct sl_nccl_channel *channels;
    struct sl_nccl_comparisons *comparisons; /* of groups that have been closed, for those that are opened */
    float *scratch;                          /* for the first words over a wire */
    struct sl_nccl_owed *owed;               /* [owes], of owed_room: graphs.c */
    int owes, owed_room;
    unsigned step;          /* of the queue's, whose first call came at: */
    double began, patience; /* seconds; graphs.c */
    bool in_vain;           /* it has been, in this step */
    cudaEvent_t early;      /* where the compute queue was at a capture's first receive that follows no reader there: */
    unsigned early_in;
    ncclComm_t split, none; /* handed over by NCCL: a member's communicator; NULL to those that are none */
};

struct sl_nccl_run {
    const struct sl_nccl_hosts *hosts;
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    sl_program *program;
    void *arg;

    _Atomic bool failed;  /* the run has ended for all: abort the communicators */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int inside; /* programs that run */
    bool over;  /* the watchdog may go */
    struct sl_nccl_wire *wires;
    struct sl_nccl_told *told; /* the hosts' own */
    struct sl_nccl_coordinate coordinate[];
};

struct sl_nccl_coordinate *sl_nccl_self(const struct sl_spmd *self);

static inline struct sl_cuda_queue *sl_nccl_queue(const struct sl_nccl_coordinate *me) { return me->self->queue; }

/* Memory for as long as the run lasts, on the device or (HOST) for copies to it; NULL without. */
void *sl_nccl_take(struct sl_nccl_coordinate *me, size_t bytes, bool host);

/* ---- wires (wire.c) ---- */

/* Something in a wire's stream that ends when `done` has been passed. */
struct sl_nccl_flight {
    cudaEvent_t done;
    double since; /* when all hosts concerned had begun it; 0: some have not, or it has ended */
    struct sl_last_call place;
};

enum sl_nccl_state {
    SL_NCCL_OPENING, /* the communicator is being made; channels: then the watchdog sends the first word */
    SL_NCCL_FIRST_WORD,
    SL_NCCL_READY
};

struct sl_nccl_wire {
    struct sl_nccl_wire *next; /* of the run's */
    struct sl_nccl_coordinate *me;
    char name[64]; /* for places */
    int device;
    cudaStream_t stream;
    cudaEvent_t before; /* what the compute queue held */
    int flights;
    bool (*first_word)(struct sl_nccl_wire *wire); /* of channels: enqueues it */

    pthread_mutex_t lock; /* of what follows; recursive */
    ncclComm_t comm;      /* NULL once it has been aborted */
    enum sl_nccl_state state;
    bool aborted;
    bool captured; /* graphs may have its calls: an abort waits until they are gone, and so has a thread of its own */
    bool aborting;
    pthread_t aborter;
    _Atomic bool gone;       /* the communicator: nobody needs the lock to ask */
    struct sl_error failure; /* the first */
    struct sl_nccl_flight *flight;
};

/* Gives WIRE a stream and events, and hands it to the watchdog. It has no communicator yet. */
int sl_nccl_wire_open(struct sl_nccl_coordinate *me, struct sl_nccl_wire *wire, int flights);
/* Gives it a communicator: member RANK of SIZE that have the same ID. Does not wait. */
bool sl_nccl_wire_join(struct sl_nccl_wire *wire, int size, ncclUniqueId id, int rank);
/* Gives it the communicator that NCCL hands over at *SPLIT, by a thread of its own: waits for that. */
int sl_nccl_wire_adopt(struct sl_nccl_wire *wire, ncclComm_t *split, const char *verb, const char *site);
/* What waits in its stream goes on; its communicator is gone. */
void sl_nccl_wire_abort(struct sl_nccl_wire *wire);
void sl_nccl_wire_close(struct sl_nccl_wire *wire);
/* The watchdog looks after it no more. */
void sl_nccl_wire_leave(struct sl_nccl_wire *wire);

/* Whether CALL has succeeded, or goes on by itself; if not, the wire keeps why. */
#define SL_NCCL(wire, call) sl_nccl_succeeded(wire, #call, call)
bool sl_nccl_succeeded(struct sl_nccl_wire *wire, const char *call, ncclResult_t result);
#define SL_NCCL_CUDA(wire, call) sl_nccl_cuda_succeeded(wire, #call, call)
bool sl_nccl_cuda_succeeded(struct sl_nccl_wire *wire, const char *call, cudaError_t error);

/* Locks the wire for calls of NCCL's; false, and not locked, when it has been aborted. */
bool sl_nccl_lock(struct sl_nccl_wire *wire);
void sl_nccl_unlock(struct sl_nccl_wire *wire);

/* Between two looks at something. */
void sl_nccl_pause(int round);
/* Waits until what NCCL does by itself is done; until FLIGHT has ended. */
int sl_nccl_await_ready(struct sl_nccl_wire *wire, const char *verb, const char *site);
/* The same while the wire is locked, once: if NCCL is not ready yet, it is unlocked meanwhile. False: it has failed,
 * and the wire is not locked any more. */
bool sl_nccl_get_ready(struct sl_nccl_wire *wire, const char *verb, const char *site);
int sl_nccl_await_flight(struct sl_nccl_wire *wire, int flight);
/* Waits for all flights that all have begun. */
int sl_nccl_await_flights(struct sl_nccl_wire *wire);
/* Whether it has ended; if it has failed, the wire keeps why. */
bool sl_nccl_has_landed(struct sl_nccl_wire *wire, int flight);

/* The stream goes on behind what the compute queue holds; flight number FLIGHT ends with what the stream holds; all
 * have begun it, so that the watchdog may count; the compute queue goes on behind it. */
bool sl_nccl_follow(struct sl_nccl_wire *wire);
/* The wire is locked; and for the same where something else marks the end. */
bool sl_nccl_mark(struct sl_nccl_wire *wire, int flight, const char *verb, const char *site);
void sl_nccl_note(struct sl_nccl_wire *wire, int flight, const char *verb, const char *site);
void sl_nccl_watch(struct sl_nccl_wire *wire, int flight);
bool sl_nccl_lead(struct sl_nccl_wire *wire, int flight);

/* A call cannot go on: what the wire has kept, if anything, ends the run. Then nothing reaches into the program's
 * memory any more. Returns SL_FAILED. */
int sl_nccl_fail(struct sl_nccl_wire *wire, const char *verb, const char *site);
/* STATUS of the hosts': if the run has ended, the same holds. Returns STATUS. */
int sl_nccl_passed(struct sl_nccl_coordinate *me, int status);
/* Aborts this coordinate's communicators. */
void sl_nccl_abort(struct sl_nccl_coordinate *me);

/* ---- the watchdog (watch.c) ---- */

void *sl_nccl_watchdog(void *run);

/* ---- groups and their calls (collectives.c) ---- */

/* Blocks on their way, one every PEER bytes: in the program's memory, or in a buffer. */
struct sl_nccl_blocks {
    char *base;
    size_t peer;
    int count;
    bool host;    /* the program's memory is the host's: `pinned` lies between */
    char *pinned; /* as `base`, for the host */
};

/* For a call after the other: the next one's use of it comes behind in the wire's stream, or when the host has waited.
 */
struct sl_nccl_buffer {
    struct sl_nccl_buffer *next;
    size_t bytes;
    bool taken;
    char *memory;
};

struct sl_nccl_call {
    bool under_way, met, enqueued;
    bool taped; /* graphs.c has enqueued it: */
    bool held;  /* and its flight's end is not marked yet */
    int place;
    uint32_t ticket;
    struct sl_collective call;
    bool combines; /* a sum that the host takes, of all members' blocks */
    struct sl_nccl_blocks in, out;
    struct sl_nccl_buffer *device, *pinned; /* NULL: none is needed */
};

struct sl_nccl_group {
    struct sl_nccl_group *next;
    struct sl_nccl_wire wire;
    struct sl_group group;
    void *hosts;
    uint32_t started;
    struct sl_nccl_comparisons *comparisons; /* NULL: calls are not compared in the stream */
    struct sl_nccl_buffer *device, *pinned;
    struct sl_nccl_call call[SL_MAX_IN_FLIGHT];
    /* Of graphs.c: by the place that a call has in its step, modulo SL_MAX_IN_FLIGHT. */
    cudaEvent_t behind[SL_MAX_IN_FLIGHT];
    bool open[SL_MAX_IN_FLIGHT]; /* the compute queue does not wait for it yet */
    bool holds;
    unsigned step;
    int places; /* that the step has given */
};

/* Whose wire it is. */
static inline struct sl_nccl_group *sl_nccl_group_of(const struct sl_nccl_wire *wire) {
    return (struct sl_nccl_group *)((char *)(uintptr_t)wire - offsetof(struct sl_nccl_group, wire));
}

int sl_nccl_group_open(struct sl_spmd *self, struct sl_group *group);
int sl_nccl_group_close(struct sl_spmd *self, struct sl_group *group, const char *site);
int sl_nccl_start(struct sl_spmd *self, struct sl_request *request);
int sl_nccl_test(struct sl_spmd *self, struct sl_request *request, bool *done);
int sl_nccl_finish(struct sl_spmd *self, struct sl_request *request);
void sl_nccl_groups_close(struct sl_nccl_coordinate *me);

/* ---- what a call moves (move.c) ---- */

/* Finds out how blocks lie, and sets buffers aside. False without memory. */
bool sl_nccl_plan(struct sl_nccl_group *group, struct sl_nccl_call *c);
/* Enqueues what comes before NCCL's part, that part, and what comes after. The wire is locked. */
bool sl_nccl_pack(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_exchange(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_unpack(struct sl_nccl_group *group, struct sl_nccl_call *c);
/* What is left to the host when all that has ended; gives the buffers back. */
void sl_nccl_deliver(struct sl_nccl_call *c);
void sl_nccl_buffers_close(struct sl_nccl_buffer *list);

/* ---- comparing calls in the stream (compare.c, for processes.c) ---- */

/* In checked mode sets memory aside for a group's calls; false without. Gives it back, for the next group. */
bool sl_nccl_comparisons_open(struct sl_nccl_group *group);
void sl_nccl_comparisons_close(struct sl_nccl_group *group);
/* `describe` and `judge` of struct sl_nccl_hosts. What an earlier call in the same slot has enqueued has ended. */
bool sl_nccl_describe(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_judge(struct sl_nccl_group *group, struct sl_nccl_call *c);

/* ---- calls as parts of graphs (graphs.c) ---- */

/* A call over a group, or a message at this end of a channel, that has ended here, but for the peers' hosts, which
 * nobody has asked yet. */
struct sl_nccl_owed {
    struct sl_nccl_group *group; /* or NULL */
    struct sl_collective call;
    uint32_t ticket; /* a channel: the other end's count */
    struct sl_nccl_channel *channel;
    int slot;
};

/* From now on ME's queue may hold back what goes over groups; no more. Where that is so already, nothing happens. */
void sl_nccl_branch(struct sl_nccl_coordinate *me, bool open);
/* Whether a call whose blocks are known goes by the queue's tape. If so, these enqueue its start, and its end. */
bool sl_nccl_may_hold(struct sl_nccl_group *group, const struct sl_nccl_call *c);
bool sl_nccl_hold_start(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_hold_end(struct sl_nccl_group *group, const struct sl_nccl_call *c);
/* Whether who asks if C has ended, is told "not yet" whatever it has done. */
bool sl_nccl_answers_late(const struct sl_nccl_group *group, const struct sl_nccl_call *c);
/* Whether the host need not wait for C's peers now, and will ask them later. */
bool sl_nccl_owe(struct sl_nccl_group *group, const struct sl_nccl_call *c);
/* The same of a channel's slot: for the other end's count of messages to be TARGET. */
bool sl_nccl_owe_message(struct sl_nccl_channel *channel, int slot, uint32_t target);
/* A capture that is refused is the queue's failure, not the wire's: the call can still go without. Returns false. */
bool sl_nccl_refused(struct sl_cuda_queue *queue, struct sl_nccl_wire *wire);
/* Before GROUP's call number TICKET begins: nothing is held back where that may wait for peers. */
void sl_nccl_make_way(struct sl_nccl_group *group, uint32_t ticket);

/* ---- channels (channel.c) ---- */

enum { SL_NCCL_SENDER, SL_NCCL_RECEIVER };

/* A slot at this end, and where streams have got to: the wire's with its last message, the compute queue with reading
 * it. The events are known in the stretch in which they were recorded (sl_cuda_queue). */
struct sl_nccl_slot {
    cudaEvent_t moved, read;
    unsigned moved_in, read_in;
    bool held; /* its flight's end is not marked yet */
};

struct sl_nccl_channel {
    struct sl_nccl_channel *next;
    struct sl_nccl_coordinate *me;
    struct sl_nccl_wire wire; /* not open on a channel to oneself */
    int from, to, slots;
    int end;              /* that is here; to oneself it is the sender's, too */
    size_t bytes, stride; /* of a slot, as wanted and rounded up to cache lines */
    const char *site;
    char name[48]; /* for places */
    char *memory;
    struct sl_nccl_slot *at; /* [slots] */
    int open;                /* the slot of the last send, which the compute queue does not wait for yet, or -1 */
    uint32_t count[2];       /* by end: messages posted, released */
    int slot[2];             /* the next one */
    bool holds[2];
    bool met; /* the other end is open, and the wire ready */
    void *hosts;
};

/* Whose wire it is. */
static inline struct sl_nccl_channel *sl_nccl_channel_of(const struct sl_nccl_wire *wire) {
    return (struct sl_nccl_channel *)((char *)(uintptr_t)wire - offsetof(struct sl_nccl_channel, wire));
}

int sl_nccl_channel_open(struct sl_spmd *self, struct sl_channel *channel);
int sl_nccl_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
int sl_nccl_channel_post(struct sl_spmd *self, struct sl_channel *channel);
int sl_nccl_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
int sl_nccl_channel_release(struct sl_spmd *self, struct sl_channel *channel);
void sl_nccl_channels_rest(struct sl_spmd *self);
/* What the tape runs for a post, and where nothing that was posted is under way any more. */
sl_cuda_run sl_nccl_send, sl_nccl_rest;
/* What this end waits in, for verdicts. */
const char *sl_nccl_waiting(const struct sl_nccl_channel *channel);
/* `join` and `settle` of struct sl_cuda_branches, the latter before hosts are asked. */
void sl_nccl_channels_join(struct sl_nccl_coordinate *me, bool lost);
void sl_nccl_channels_mark(struct sl_nccl_coordinate *me);
void sl_nccl_channels_close(struct sl_nccl_coordinate *me);

/* ---- coordinates that are threads (threads.c), or processes (processes.c, or alone.c without MPI) ----
 */

extern const struct sl_nccl_hosts sl_nccl_threads;
extern const struct sl_nccl_hosts sl_nccl_processes;

/* The engine where coordinates are processes. */
extern const struct sl_engine_table sl_engine_nccl_processes;

/* Whether CALL needs the member at POSITION to have begun it, too. */
bool sl_nccl_needs(const struct sl_collective *call, int position);

int sl_nccl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);
int sl_nccl_progress(struct sl_spmd *self);

SL_END_C
#endif
