/* engine.h - inside the local engine: a thread per coordinate, all in one process.
 *
 * All that coordinates tell each other while running are words: counts that one coordinate, the owner, raises and
 * others wait for. So every wait names one peer, and "who waits for whom" is a list with at most one entry a
 * coordinate; that is what verdicts are proven from (verdict.c).
 *
 * Memory orders. Posting a word releases everything its owner did before; having seen it acquires that. Stronger order,
 * sequential consistency ("SC" below), is used where two threads each write one place and then read the other's, and at
 * least one of them must see the other's write:
 *
 * - A word and its sleepers: the poster sees that somebody sleeps, or the sleeper sees the new value.
 *
 * - Moving and the run's status: who gives up after the end of the run sees that a peer still reaches into its
 *   buffers, or the peer sees the end and does not begin.
 *
 * - Beats, returns and words: the proofs of verdict.c. */
#ifndef SL_COLLECTIVES_LOCAL_ENGINE_H
#define SL_COLLECTIVES_LOCAL_ENGINE_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "collectives/channel.h"
#include "collectives/waits.h"
#include "spmd/placement.h"

SL_BEGIN_C

/* ---- words (wait.c) ---- */

struct sl_local_word {
    _Atomic uint32_t value;    /* raised by its owner alone; compared modulo 2^32 */
    _Atomic uint32_t sleepers; /* how many sleep on it: most posts need no system call */
};

/* What an owner notes beside a word before it raises it, so that waits for it can be divided: when that was, and for
 * how long it had no core until then. 0: it is not noted. */
struct sl_local_stamp {
    _Atomic double time, starved;
};

static inline bool sl_local_reached(uint32_t value, uint32_t target) { return (int32_t)(value - target) >= 0; }

/* ---- a run and its coordinates (engine.c) ---- */

enum { SL_LOCAL_MARKS = 256 };

struct sl_local_run;

struct sl_local_coordinate {
    struct sl_spmd spmd;
    struct sl_local_run *run;
    pthread_t thread;

    /* What others read of it; written by its own thread alone. The beat rises with every call. While it is odd the
     * coordinate sleeps at least until `peer` has raised `word` to `target`; these three and the place stay as they
     * are. */
    alignas(SL_CACHE_LINE) _Atomic uint32_t beat;
    _Atomic bool returned; /* no more calls come */
    _Atomic bool moving;   /* reaching into peers' buffers */
    _Atomic int peer;
    _Atomic(struct sl_local_word *) word;
    _Atomic uint32_t target;
    _Atomic(struct sl_local_word *) bed; /* on which it sleeps */
    /* The place: its latest call, as in `psum` `over "data"` `train.c:12`. The object may be
     * a group's text: it is read under the run's lock. */
    _Atomic(const char *) verb, object, site;
    /* What it was at then: spmd.doing. */
    _Atomic(const char *) what;
    _Atomic int stage, microbatch, action;
    _Atomic int64_t steps;
    _Atomic uint64_t module[SL_MODULE_CALLED / sizeof(uint64_t)]; /* its text, up to a zero */
    struct sl_local_stamp latest;                                 /* its last one, of whatever word */

    /* Where its queue had come to when it let others at its memory, one after another; see mark.c. */
    void *mark[SL_LOCAL_MARKS];
    unsigned marks;
    _Atomic(void *) moved; /* since it last moved data of others */

    /* Under the run's lock: of groups whose first member it is, and of channels that begin at it. */
    struct sl_local_communicator *communicators;
    struct sl_local_channel *channels;
};

struct sl_local_run {
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    sl_program *program;
    void *arg;
    bool spin; /* every coordinate has a PU of its own */
    struct sl_placement placement;
    _Atomic bool ending;     /* somebody writes the verdict, and sets the status behind it */
    _Atomic int status;      /* of the first failure, which ends the run; SL_OK until then */
    struct sl_error verdict; /* read when the status is set, as is: */
    bool in_vain;            /* it is on a wait */
    bool told;               /* it has been printed; the thread's that runs the mesh */

    /* Taken where groups and channels are opened and groups closed, and for verdicts: what these read of coordinates,
     * names in places and words that are waited for, is not freed meanwhile. */
    pthread_mutex_t opening;

    struct sl_local_coordinate coordinate[];
};

static inline struct sl_local_coordinate *sl_local_self(const struct sl_spmd *self) { return self->state; }

/* Zeroed, aligned to cache lines; NULL without memory. Freed by free. */
void *sl_local_take(size_t bytes);

/* Ends the run with STATUS and the coordinate's own message. */
void sl_local_give_up(struct sl_local_coordinate *me, int status);

/* ---- waiting (wait.c) ---- */

/* Begins a call: beats and notes the place. SL_FAILED once the run has ended; a coordinate that has failed (sl_fail)
 * and calls once more, to see started calls off, ends it. */
int sl_local_enter(struct sl_local_coordinate *me, const char *verb, const char *object, const char *site);

/* Raises WORD, of which the caller is the owner, and wakes who sleeps on it. */
void sl_local_post(struct sl_local_word *word, uint32_t value);

/* Waits until PEER has raised WORD to TARGET; STAMP is that of the word then (NULL: it has
 * none). SL_FAILED once the run has ended. */
int sl_local_wait(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target, int peer,
                  const struct sl_local_stamp *stamp);

/* The peer that keeps a word from being raised which is raised when all peers have come: as long as it has not raised
 * WORD to TARGET. */
struct sl_local_missing {
    int peer; /* -1: none is known */
    struct sl_local_word *word;
    uint32_t target;
};
/* Finds one for the call ARG of ME. SL_FAILED where all have come and the run ends, because calls differ. */
struct sl_local_lack {
    int (*find)(struct sl_local_coordinate *me, const void *arg, struct sl_local_missing *missing);
    const void *arg;
};

/* The same of a word that the last one of several peers raises. */
int sl_local_wait_for_all(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target,
                          const struct sl_local_lack *lack, const struct sl_local_stamp *stamp);

/* ---- where queues wait for each other (mark.c) ---- */

/* *MARK is what peers' queues follow (sl_device.follow) before they touch what the calling coordinate's queue works on
 * by now. Reports what is known to have failed in the queue. */
int sl_local_mark(struct sl_local_coordinate *me, void **mark);

/* The same, unless the memory in question is not a device's (QUEUED is false): then the host waits, *MARK is NULL. */
int sl_local_mark_or_settle(struct sl_local_coordinate *me, bool queued, void **mark);

/* Waits for what COORDINATE has enqueued that moves data of others. */
void sl_local_await_moved(struct sl_local_coordinate *coordinate);

void sl_local_marks_close(struct sl_local_coordinate *coordinate);

/* ---- where the time of waits goes (stamp.c) ---- */

/* Notes in STAMP that ME is about to raise its word: where waits are timed, and where the engine delays. */
void sl_local_stamp(struct sl_local_coordinate *me, struct sl_local_stamp *stamp);

/* Before a wait for PEER (-1: several): what divides it afterwards. */
struct sl_local_pause {
    struct sl_wait_mark mark;
    double seen, starved; /* the peer's latest stamp then */
};
struct sl_local_pause sl_local_pause_begin(const struct sl_local_coordinate *me, int peer);
/* Counts the wait. */
void sl_local_pause_end(struct sl_local_coordinate *me, const struct sl_local_pause *pause,
                        const struct sl_local_stamp *stamp);

/* Sleeps until the engine's delay after SENT (on sl_now's clock) is over. */
void sl_local_delay(struct sl_local_coordinate *me, double sent);

/* Brackets the moving of data out of and into peers' buffers. Begin fails with SL_FAILED once the run has ended. */
int sl_local_begin_moving(struct sl_local_coordinate *me);
void sl_local_end_moving(struct sl_local_coordinate *me);

/* SL_FAILED once the run has ended; then no peer reaches, or ever will, into this coordinate's buffers. */
int sl_local_alive(struct sl_local_coordinate *me);

/* Makes all sleepers look around. */
void sl_local_wake_all(struct sl_local_run *run);

/* ---- verdicts (verdict.c) ---- */

/* What a sleeper remembers between two looks around. */
struct sl_local_watch {
    double looked, absent; /* when it last looked; seconds for which the peer has shown no sign */
    uint32_t beat;         /* the peer's, then */
};

enum { SL_LOCAL_TICK_MS = 100 }; /* sleepers look around this often */

/* One look around of the sleeper ME, whose wait is published: ends the run where its peer has returned, is absent, or
 * waits, through others or at once, for ME. SL_FAILED once the run has ended. */
int sl_local_look(struct sl_local_coordinate *me, struct sl_local_watch *watch);

/* Ends the run with STATUS and a message, unless it has ended already. */
void sl_local_end(struct sl_local_run *run, int status, const char *format, ...) SL_PRINTF(3, 4);

/* Ends the run because MINE and the same call of coordinate PEER differ. Returns SL_FAILED. */
int sl_local_mismatch(struct sl_local_coordinate *me, const struct sl_collective *mine,
                      const struct sl_collective *theirs, int peer);

/* ---- groups (groups.c), collectives (collectives.c), channels (channel.c) ---- */

int sl_local_group_open(struct sl_spmd *self, struct sl_group *group);
int sl_local_group_close(struct sl_spmd *self, struct sl_group *group, const char *site);
int sl_local_start(struct sl_spmd *self, struct sl_request *request);
int sl_local_test(struct sl_spmd *self, struct sl_request *request, bool *done);
int sl_local_finish(struct sl_spmd *self, struct sl_request *request);
int sl_local_gather_from(struct sl_spmd *self, const struct sl_collective *call, const void *const *input);
int sl_local_peers_begin(struct sl_spmd *self, const char *site);
void sl_local_peers_end(struct sl_spmd *self);
int sl_local_group_memory(struct sl_spmd *self, const struct sl_group *group, size_t bytes, void **memory);
void sl_local_groups_close(struct sl_local_run *run);

int sl_local_channel_open(struct sl_spmd *self, struct sl_channel *channel);
int sl_local_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
int sl_local_channel_post(struct sl_spmd *self, struct sl_channel *channel);
int sl_local_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
int sl_local_channel_release(struct sl_spmd *self, struct sl_channel *channel);
void sl_local_channels_close(struct sl_local_run *run);

SL_END_C
#endif
