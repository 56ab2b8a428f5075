/* engine.h - internals of the nccl engine: NCCL moves data between the coordinates' GPUs.
 *
 * The hosts decide which coordinate runs on which process, which one waits for which, and why a run cannot go on, as
 * they do without GPUs: coordinates are threads of the local engine, or processes of the mpi engine, and report to each
 * other there which calls they have begun (hosts.c). The host waits, in sl_wait, until its peers have
 * begun the call; it does not wait for the GPU. So a GPU waits only for work that all hosts concerned have enqueued,
 * deadlocks and absent peers get their verdicts before a GPU hangs in them, and synchronizing with a queue is safe.
 *
 * A wire is a communicator and its stream. A call is enqueued in the wire's stream behind the work in the compute
 * queue, and sl_wait lets the compute queue wait for it. Memory that the device does not reach passes through buffers;
 * then the host waits until the result has come.
 *
 * Two threads use a communicator, hence the lock of a wire: its coordinate's thread, and the watchdog, one thread per
 * process (watch.c). The watchdog asks communicators for errors and aborts them once the run has ended, which releases
 * all waiting work in the queues. Nothing in NCCL blocks the host: communicators are non-blocking, and polled until
 * they are ready. */
#ifndef SL_COLLECTIVES_NCCL_ENGINE_H
#define SL_COLLECTIVES_NCCL_ENGINE_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/engines.h"
#include "collectives/verdict.h"
#include "spmd/device/cuda/cuda.h"

SL_BEGIN_C

struct sl_nccl_run;
struct sl_nccl_coordinate;
struct sl_nccl_group;
struct sl_nccl_channel;
struct sl_nccl_call;
struct sl_nccl_comparisons;
struct sl_nccl_owed;

/* ---- a run (engine.c) ---- */

/* Memory kept until the run ends: freeing it would wait for all work on the device. */
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
    int opened;                  /* number of groups opened, as a member or not: the same everywhere */
    struct sl_nccl_group *groups;
    struct sl_nccl_buffer *device, *pinned; /* buffers of closed groups, reused by new groups */
    struct sl_nccl_channel *channels;
    struct sl_nccl_comparisons *comparisons; /* of closed groups, reused by new groups */
    float *scratch;                          /* data of the first messages over a wire */
    struct sl_nccl_owed *owed;               /* [owes], allocated owed_room; graphs.c */
    int owes, owed_room;
    unsigned step;          /* the queue's current step; its first call began at: */
    double began, patience; /* seconds; graphs.c */
    bool in_vain;           /* a wait of this step was in vain */
    cudaEvent_t early;      /* the compute queue's position at a capture's first receive without a reader in it: */
    unsigned early_in;
    ncclComm_t split, none; /* set by NCCL: the new communicator of a member; NULL for others */
};

struct sl_nccl_run {
    const struct sl_engine_table *below;     /* the engine that runs the programs */
    const struct sl_cuda_branches *branches; /* of graphs.c */
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    sl_program *program;
    void *arg;

    _Atomic bool failed;  /* the run has ended for all: abort the communicators */
    pthread_mutex_t lock; /* protects the following */
    pthread_cond_t changed;
    int inside; /* number of running programs */
    bool over;  /* the watchdog may end */
    struct sl_nccl_wire *wires;
    struct sl_nccl_coordinate coordinate[];
};

/* ---- a coordinate (coordinate.c) ---- */

static inline struct sl_nccl_coordinate *sl_nccl_self(const struct sl_spmd *self) { return self->above; }

/* Shows the other hosts a sign of life. SL_FAILED once the run has ended. */
static inline int sl_nccl_alive(const struct sl_nccl_coordinate *me) { return me->run->below->progress(me->self); }

static inline struct sl_cuda_queue *sl_nccl_queue(const struct sl_nccl_coordinate *me) { return me->self->queue; }

/* Begins a call: notes its place, and looks after the hosts. SL_FAILED once the run has ended. */
int sl_nccl_enter(struct sl_nccl_coordinate *me, const char *verb, const char *object, const char *site);

/* Memory until the end of the run, on the device or (HOST) for copies to it; NULL without memory. */
void *sl_nccl_take(struct sl_nccl_coordinate *me, size_t bytes, bool host);

/* ---- wires (wire.c) ---- */

/* Work in a wire's stream; it has ended when `done` has been passed. */
struct sl_nccl_flight {
    cudaEvent_t done;
    double since; /* time when all hosts concerned had begun it; 0: some have not, or it has ended */
    struct sl_last_call place;
};

enum sl_nccl_state {
    SL_NCCL_OPENING, /* the communicator is being made; for channels the watchdog then sends the first message */
    SL_NCCL_FIRST_WORD,
    SL_NCCL_READY,
    SL_NCCL_APART /* a receiver's beginning: it does not know the communicator's id yet */
};

struct sl_nccl_wire {
    struct sl_nccl_wire *next; /* in the run's list */
    struct sl_nccl_coordinate *me;
    char name[64]; /* for verdicts' places */
    int device;
    cudaStream_t stream;
    cudaEvent_t before; /* the compute queue's position */
    int flights;
    bool (*first_word)(struct sl_nccl_wire *wire); /* channels: enqueues the first message */

    pthread_mutex_t lock; /* protects the following; recursive */
    ncclComm_t comm;      /* NULL once aborted */
    enum sl_nccl_state state;
    bool aborted;
    bool captured; /* graphs may contain its calls: an abort waits for the graphs' end, in its own thread */
    bool aborting;
    pthread_t aborter;
    _Atomic bool gone;       /* the communicator is gone; readable without the lock */
    struct sl_error failure; /* the first failure */
    struct sl_nccl_flight *flight;
};

/* Creates WIRE's stream and events, and registers it with the watchdog. It has no communicator yet. */
int sl_nccl_wire_open(struct sl_nccl_coordinate *me, struct sl_nccl_wire *wire, int flights);
/* Joins a communicator as member RANK of SIZE members with the same ID. Does not wait. */
bool sl_nccl_wire_join(struct sl_nccl_wire *wire, int size, ncclUniqueId id, int rank);
/* Waits until a thread of NCCL's has written a communicator to *SPLIT, and takes it over. */
int sl_nccl_wire_adopt(struct sl_nccl_wire *wire, ncclComm_t *split, const char *verb, const char *site);
/* Aborts the communicator; waiting work in its stream goes on. */
void sl_nccl_wire_abort(struct sl_nccl_wire *wire);
void sl_nccl_wire_close(struct sl_nccl_wire *wire);
/* Removes the wire from the watchdog's list. */
void sl_nccl_wire_leave(struct sl_nccl_wire *wire);

/* Whether CALL has succeeded or is in progress; otherwise saves its error in the wire. */
#define SL_NCCL(wire, call) sl_nccl_succeeded(wire, #call, call)
bool sl_nccl_succeeded(struct sl_nccl_wire *wire, const char *call, ncclResult_t result);
#define SL_NCCL_CUDA(wire, call) sl_nccl_cuda_succeeded(wire, #call, call)
bool sl_nccl_cuda_succeeded(struct sl_nccl_wire *wire, const char *call, cudaError_t error);

/* Locks the wire for NCCL calls; false, and not locked, if it has been aborted. */
bool sl_nccl_lock(struct sl_nccl_wire *wire);
void sl_nccl_unlock(struct sl_nccl_wire *wire);

/* Pauses between two polls. */
void sl_nccl_pause(int round);
/* Waits until NCCL's work in the background is done; await_flight: until FLIGHT has ended. */
int sl_nccl_await_ready(struct sl_nccl_wire *wire, const char *verb, const char *site);
/* The same once, with the wire locked: if NCCL is not ready yet, the wire is unlocked meanwhile. False: it has failed,
 * and the wire is not locked any more. */
bool sl_nccl_get_ready(struct sl_nccl_wire *wire, const char *verb, const char *site);
int sl_nccl_await_flight(struct sl_nccl_wire *wire, int flight);
/* Waits for all flights begun by all hosts. */
int sl_nccl_await_flights(struct sl_nccl_wire *wire);
/* Whether the flight has ended; if it has failed, saves the error in the wire. */
bool sl_nccl_has_landed(struct sl_nccl_wire *wire, int flight);

/* follow: the stream continues behind the compute queue's work; mark: flight number FLIGHT ends with the stream's work;
 * watch: all have begun it, so the watchdog counts its time; lead: the compute queue continues behind it. */
bool sl_nccl_follow(struct sl_nccl_wire *wire);
/* The wire is locked. note does the same if another event marks the end. */
bool sl_nccl_mark(struct sl_nccl_wire *wire, int flight, const char *verb, const char *site);
void sl_nccl_note(struct sl_nccl_wire *wire, int flight, const char *verb, const char *site);
void sl_nccl_watch(struct sl_nccl_wire *wire, int flight);
bool sl_nccl_lead(struct sl_nccl_wire *wire, int flight);

/* Handles a failed call: the error saved in the wire, if any, ends the run. Afterwards nothing accesses the program's
 * memory any more. Returns SL_FAILED. */
int sl_nccl_fail(struct sl_nccl_wire *wire, const char *verb, const char *site);
/* Passes a STATUS of the hosts on; if the run has ended, first aborts this coordinate's communicators. Returns STATUS.
 */
int sl_nccl_passed(struct sl_nccl_coordinate *me, int status);
/* Aborts this coordinate's communicators. */
void sl_nccl_abort(struct sl_nccl_coordinate *me);

/* ---- the watchdog (watch.c) ---- */

void *sl_nccl_watchdog(void *run);

/* ---- groups and their calls (collectives.c) ---- */

/* Blocks to send or receive, one every PEER bytes: in the program's memory, or in a buffer. */
struct sl_nccl_blocks {
    char *base;
    size_t peer;
    int count;
    bool host;    /* the program's memory is the host's: copies go through `pinned` */
    char *pinned; /* the host's counterpart of `base` */
};

/* Used by one call after another: the next call uses it behind the first in the wire's stream, or after the host has
 * waited. */
struct sl_nccl_buffer {
    struct sl_nccl_buffer *next;
    size_t bytes;
    bool taken;
    char *memory;
};

struct sl_nccl_call {
    bool under_way, met, enqueued;
    bool taped; /* enqueued by graphs.c: */
    bool held;  /* and the end of its flight is not marked yet */
    int place;
    uint32_t ticket;
    struct sl_collective call;
    bool combines; /* this engine, not NCCL, combines all members' blocks */
    struct sl_nccl_blocks in, out;
    struct sl_nccl_buffer *device, *pinned; /* NULL: not needed */
};

struct sl_nccl_group {
    struct sl_nccl_group *next;
    struct sl_nccl_wire wire;
    struct sl_group group;
    struct sl_engine_line line;
    bool *needs;                                /* [group size], for sl_nccl_begin */
    const void **blocks;                        /* [group size], for sums computed here */
    struct sl_call_note mine[SL_MAX_IN_FLIGHT]; /* in checked mode, by the count of calls; and counts of calls: */
    uint32_t begun, *compared;                  /* begun here, and by member compared */
    uint32_t started;
    struct sl_nccl_comparisons *comparisons; /* NULL: calls are not compared in the stream */
    struct sl_nccl_buffer *device, *pinned;
    struct sl_nccl_call call[SL_MAX_IN_FLIGHT];
    /* For graphs.c: by the call's position in its step, modulo SL_MAX_IN_FLIGHT. */
    cudaEvent_t behind[SL_MAX_IN_FLIGHT];
    bool open[SL_MAX_IN_FLIGHT]; /* the compute queue does not wait for it yet */
    bool holds;
    unsigned step;
    int places; /* positions used in the step */
};

/* The group of WIRE. */
static inline struct sl_nccl_group *sl_nccl_group_of(const struct sl_nccl_wire *wire) {
    return (struct sl_nccl_group *)((char *)(uintptr_t)wire - offsetof(struct sl_nccl_group, wire));
}

int sl_nccl_group_open(struct sl_spmd *self, struct sl_group *group);
int sl_nccl_group_close(struct sl_spmd *self, struct sl_group *group, const char *site);
int sl_nccl_start(struct sl_spmd *self, struct sl_request *request);
int sl_nccl_test(struct sl_spmd *self, struct sl_request *request, bool *done);
int sl_nccl_finish(struct sl_spmd *self, struct sl_request *request);
void sl_nccl_groups_close(struct sl_nccl_coordinate *me);

/* ---- data movement of a call (move.c) ---- */

/* Computes the layout of blocks and reserves buffers. False without memory. */
bool sl_nccl_plan(struct sl_nccl_group *group, struct sl_nccl_call *c);
/* pack and unpack enqueue the work before and after NCCL's part, exchange NCCL's part itself. The wire is locked. */
bool sl_nccl_pack(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_exchange(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_unpack(struct sl_nccl_group *group, struct sl_nccl_call *c);
/* Does the host's part after the enqueued work has ended; releases the buffers. */
void sl_nccl_deliver(struct sl_nccl_group *group, struct sl_nccl_call *c);
void sl_nccl_buffers_close(struct sl_nccl_buffer *list);

/* ---- comparing calls in the stream (compare_calls.c) ---- */

/* open allocates memory for comparing a group's calls in checked mode; false without memory. close keeps it for the
 * next group. */
bool sl_nccl_comparisons_open(struct sl_nccl_group *group);
void sl_nccl_comparisons_close(struct sl_nccl_group *group);
/* Enqueue the exchange of descriptions, and then the comparison, which holds the stream if they differ. The wire is
 * locked; between the two NCCL must be ready. All work enqueued by an earlier call in the same slot has ended. */
bool sl_nccl_describe(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_judge(struct sl_nccl_group *group, struct sl_nccl_call *c);

/* ---- calls and messages whose peers are asked later (owed.c) ---- */

/* A call over a group, or a message at this end of a channel, ended here without asking the peers' hosts. */
struct sl_nccl_owed {
    struct sl_nccl_group *group; /* NULL for a channel */
    struct sl_collective call;
    uint32_t ticket; /* for a channel: the other end's count */
    struct sl_nccl_channel *channel;
    int slot;
};

/* OPEN: from now on ME's queue may hold back calls over groups; otherwise it stops. No effect if nothing changes. */
void sl_nccl_branch(struct sl_nccl_coordinate *me, bool open);
/* Whether the host need not wait for C's peers now, and will ask them later. */
bool sl_nccl_owe(struct sl_nccl_group *group, const struct sl_nccl_call *c);
/* The same for a channel's slot: the other end's count of messages must reach TARGET. */
bool sl_nccl_owe_message(struct sl_nccl_channel *channel, int slot, uint32_t target);
/* Moves a refused capture's error from the wire to the queue: the call can still run without a graph. Returns false. */
bool sl_nccl_refused(struct sl_cuda_queue *queue, struct sl_nccl_wire *wire);
/* ---- channels (channel.c) ---- */

enum { SL_NCCL_SENDER, SL_NCCL_RECEIVER };

/* A slot at this end. moved: the wire's stream is past its last message; read: the compute queue has read it. An event
 * is valid in the stretch in which it was recorded (sl_cuda_queue). */
struct sl_nccl_slot {
    cudaEvent_t moved, read;
    unsigned moved_in, read_in;
    bool held; /* the end of its flight is not marked yet */
};

struct sl_nccl_channel {
    struct sl_nccl_channel *next;
    struct sl_nccl_coordinate *me;
    struct sl_nccl_wire wire; /* not open for a channel to oneself */
    int from, to, slots;
    int end;              /* this end; for a channel to oneself the sender's */
    size_t bytes, stride; /* of a slot: as requested, and rounded up to cache lines */
    const char *site;
    char name[48]; /* for verdicts' places */
    char *memory;
    struct sl_nccl_slot *at; /* [slots] */
    int open;                /* slot of the last send, for which the compute queue does not wait yet, or -1 */
    uint32_t count[2];       /* by end: messages posted, messages released */
    int slot[2];             /* by end: the next slot */
    bool holds[2];
    bool met; /* the other end is open, and the wire is ready */
    struct sl_group ends;
    struct sl_engine_line line;
};

/* The channel of WIRE. */
static inline struct sl_nccl_channel *sl_nccl_channel_of(const struct sl_nccl_wire *wire) {
    return (struct sl_nccl_channel *)((char *)(uintptr_t)wire - offsetof(struct sl_nccl_channel, wire));
}

int sl_nccl_channel_open(struct sl_spmd *self, struct sl_channel *channel);
int sl_nccl_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
int sl_nccl_channel_post(struct sl_spmd *self, struct sl_channel *channel);
int sl_nccl_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
int sl_nccl_channel_release(struct sl_spmd *self, struct sl_channel *channel);
void sl_nccl_channels_rest(struct sl_spmd *self);
/* Recorded on the tape: a post, and the point at which all posted messages have been taken. */
sl_cuda_run sl_nccl_send, sl_nccl_rest;
/* The call in which this end waits, for verdicts. */
const char *sl_nccl_waiting(const struct sl_nccl_channel *channel);
/* `join` of struct sl_cuda_branches; and the part of `settle` before hosts are asked. */
void sl_nccl_channels_join(struct sl_nccl_coordinate *me, bool lost);
void sl_nccl_channels_mark(struct sl_nccl_coordinate *me);
void sl_nccl_channels_close(struct sl_nccl_coordinate *me);

/* ---- calls as parts of graphs (graphs.c) ---- */

extern const struct sl_cuda_branches sl_nccl_branches;
/* Whether a planned call is recorded on the queue's tape. If so, the next two enqueue its start and its end. */
bool sl_nccl_may_hold(struct sl_nccl_group *group, const struct sl_nccl_call *c);
bool sl_nccl_hold_start(struct sl_nccl_group *group, struct sl_nccl_call *c);
bool sl_nccl_hold_end(struct sl_nccl_group *group, const struct sl_nccl_call *c);
/* Whether sl_test of C must answer "not done" in any case. */
bool sl_nccl_answers_late(const struct sl_nccl_group *group, const struct sl_nccl_call *c);
/* Called before GROUP's call number TICKET begins: releases held-back work if the beginning waits for peers, as it may
 * in checked mode. */
void sl_nccl_make_way(struct sl_nccl_group *group, uint32_t ticket);

/* ---- communication between hosts (hosts.c) ---- */

/* Fills in the id of the communicator of all coordinates, once they have met. */
int sl_nccl_unique_id(struct sl_nccl_coordinate *me, ncclUniqueId *id);

int sl_nccl_group_line(struct sl_nccl_group *group);
/* Whether CALL needs the member at POSITION to begin it, too. */
bool sl_nccl_needs(const struct sl_collective *call, int position);
/* Begins this member's call number TICKET. In checked mode waits until all members have begun the slot's last call, and
 * compares the call with the calls of members known to have begun it. */
int sl_nccl_begin(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket);
/* Checks, or waits, until the members needed by CALL have begun it. */
bool sl_nccl_met(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket);
int sl_nccl_meet(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket);

int sl_nccl_channel_line(struct sl_nccl_channel *channel);
/* Tells the other end that this one is open. Does not wait. */
int sl_nccl_ends_open(struct sl_nccl_channel *channel);
/* Lets a receiver join the channel's communicator as soon as its id is known. Returns whether it is not known yet. The
 * watchdog calls it, too. */
bool sl_nccl_is_apart(struct sl_nccl_channel *channel);
/* Waits until the other end is open and this end has joined its communicator. */
int sl_nccl_ends_meet(struct sl_nccl_channel *channel);
/* Waits at END until the other end's count of posted or released messages is TARGET; tell tells END's own count. */
int sl_nccl_await_count(struct sl_nccl_channel *channel, int end, uint32_t target);
void sl_nccl_tell_count(struct sl_nccl_channel *channel, int end);

/* ---- the engine (engine.c) ---- */

int sl_nccl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);
int sl_nccl_progress(struct sl_spmd *self);

SL_END_C
#endif
