/* engine.h - internals of the local engine: a thread per coordinate, all in one process.
 *
 * All communication between running coordinates is by words: counters that one coordinate, the owner, raises and others
 * wait for. So every wait names one peer, and "who waits for whom" is a list with at most one entry per coordinate;
 * proofs.c proves its verdicts from this list.
 *
 * Memory orders. Posting a word releases all earlier writes of its owner; reading the new value acquires them.
 * Sequential consistency ("SC" below) is used where two threads each write one variable and then read the other's, and
 * at least one of them must see the other's write:
 *
 * - A word and its sleepers: the poster sees that a coordinate sleeps, or the sleeper sees the new value.
 *
 * - `moving` and the run's status: a coordinate that stops after the end of the run sees that a peer still accesses its
 * buffers, or the peer sees the end and does not begin.
 *
 * - Beats, returns and words: the proofs of proofs.c. */
#ifndef SL_COLLECTIVES_LOCAL_ENGINE_H
#define SL_COLLECTIVES_LOCAL_ENGINE_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "collectives/channel.h"
#include "collectives/waits.h"
#include "spmd/placement/placement.h"

SL_BEGIN_C

/* ---- a word ---- */

struct sl_local_word {
    _Atomic uint32_t value;    /* raised by its owner only; compared modulo 2^32 */
    _Atomic uint32_t sleepers; /* number of sleepers; at 0, a post needs no system call */
};

/* Written by an owner before it raises a word, to split the wait times of others: the time of raising, and the owner's
 * time without a core until then. 0: not written. */
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

    /* Read by others, written by its own thread only. The beat rises with every call. While it is odd, the coordinate
     * sleeps at least until `peer` has raised `word` to `target`; these three and the place do not change meanwhile. */
    alignas(SL_CACHE_LINE) _Atomic uint32_t beat;
    _Atomic bool returned; /* no more calls follow */
    _Atomic bool moving;   /* accessing peers' buffers */
    _Atomic int peer;
    _Atomic(struct sl_local_word *) word;
    _Atomic uint32_t target;
    _Atomic(struct sl_local_word *) bed; /* the word on which it sleeps */
    /* The place: its latest call, as in `psum` `over "data"` `train.c:12`. The object may be a group's text: read it
     * under the run's lock. */
    _Atomic(const char *) verb, object, site;
    /* Its activity at this call: spmd.doing. */
    _Atomic(const char *) what;
    _Atomic int stage, microbatch, action;
    _Atomic int64_t steps;
    _Atomic uint64_t module[SL_MODULE_CALLED / sizeof(uint64_t)]; /* text, ends with a zero */
    struct sl_local_stamp latest;                                 /* its latest stamp, of any word */

    /* A ring of marks: the queue's position at each release of memory to others; see mark.c. */
    void *mark[SL_LOCAL_MARKS];
    unsigned marks;
    _Atomic(void *) moved; /* mark behind the last move of others' data */

    /* Under the run's lock: groups whose first member is this coordinate, and channels from it. */
    struct sl_local_communicator *communicators;
    struct sl_local_channel *channels;
    struct sl_local_line *lines; /* whose first member is this coordinate */
};

struct sl_local_run {
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    sl_program *program;
    void *arg;
    bool spin; /* every coordinate has its own PU */
    struct sl_placement placement;
    _Atomic bool ending;     /* a thread is writing the verdict; it sets the status afterwards */
    _Atomic int status;      /* status of the first failure, which ends the run; SL_OK until then */
    struct sl_error verdict; /* readable once the status is set; so is */
    bool in_vain;            /* the verdict is about a wait */
    bool told;               /* the verdict has been printed; used only by the mesh's thread */

    /* Held while groups and channels are opened, while groups are closed, and while a verdict is written, so that the
     * data of verdicts (names in places, awaited words) is not freed meanwhile. */
    pthread_mutex_t opening;

    struct sl_local_coordinate coordinate[];
};

static inline struct sl_local_coordinate *sl_local_self(const struct sl_spmd *self) { return self->state; }

/* ---- words (words.c) ---- */

/* Returns zeroed memory aligned to cache lines, to be freed by free; NULL without memory. */
void *sl_local_take(size_t bytes);

/* Raises WORD, owned by the caller, and wakes its sleepers. */
void sl_local_post(struct sl_local_word *word, uint32_t value);

enum { SL_LOCAL_TICK_MS = 100 }; /* interval of checks by sleepers */
/* Sleeps while WORD has VALUE, at most one tick. */
void sl_local_sleep(struct sl_local_word *word, uint32_t value);

/* Brackets copying out of and into peers' buffers. Begin fails with SL_FAILED once the run has ended. */
int sl_local_begin_moving(struct sl_local_coordinate *me);
void sl_local_end_moving(struct sl_local_coordinate *me);

/* SL_FAILED once the run has ended; then no peer accesses this coordinate's buffers any more. */
int sl_local_alive(struct sl_local_coordinate *me);

/* Wakes all sleepers, to check the run. */
void sl_local_wake_all(struct sl_local_run *run);

/* ---- dependencies between queues (mark.c) ---- */

/* Sets *MARK to a mark behind the calling coordinate's enqueued work; peers' queues follow it (sl_device.follow) before
 * they touch the data of this work. Reports failures of the queue known so far. */
int sl_local_mark(struct sl_local_coordinate *me, void **mark);

/* As sl_local_mark if the call uses only device memory (QUEUED). Otherwise the host waits for the queue, and *MARK is
 * NULL. */
int sl_local_mark_or_settle(struct sl_local_coordinate *me, bool queued, void **mark);

/* Waits for COORDINATE's enqueued moves of others' data. */
void sl_local_await_moved(struct sl_local_coordinate *coordinate);

void sl_local_marks_close(struct sl_local_coordinate *coordinate);

/* ---- wait times (stamp.c) ---- */

/* Writes STAMP, before ME raises its word, if waits are timed or the engine simulates a delay. */
void sl_local_stamp(struct sl_local_coordinate *me, struct sl_local_stamp *stamp);

/* State at the beginning of a wait for PEER (-1: several); sl_local_pause_end needs it to split the wait time. */
struct sl_local_pause {
    struct sl_wait_mark mark;
    double seen, starved; /* the peer's latest stamp at the beginning */
};
struct sl_local_pause sl_local_pause_begin(const struct sl_local_coordinate *me, int peer);
/* Counts the wait time. */
void sl_local_pause_end(struct sl_local_coordinate *me, const struct sl_local_pause *pause,
                        const struct sl_local_stamp *stamp);

/* Sleeps until the engine's delay after SENT (by sl_now's clock) is over. */
void sl_local_delay(struct sl_local_coordinate *me, double sent);

/* ---- verdicts (proofs.c) ---- */

/* A sleeper's state between two checks. */
struct sl_local_watch {
    double looked, absent; /* time of the last check; seconds without a sign from the peer */
    uint32_t beat;         /* the peer's beat at the last check */
};

/* One check by the sleeper ME, whose wait is published: ends the run if its peer has returned, is absent, or waits,
 * directly or through others, for ME. SL_FAILED once the run has ended. */
int sl_local_look(struct sl_local_coordinate *me, struct sl_local_watch *watch);

/* Ends the run with STATUS and a message. No effect if it has ended already. */
void sl_local_end(struct sl_local_run *run, int status, const char *format, ...) SL_PRINTF(3, 4);

/* Ends the run with STATUS and the coordinate's own message. */
void sl_local_give_up(struct sl_local_coordinate *me, int status);

/* Ends the run because MINE differs from the corresponding call of coordinate PEER. Returns SL_FAILED. */
int sl_local_mismatch(struct sl_local_coordinate *me, const struct sl_collective *mine,
                      const struct sl_collective *theirs, int peer);

/* ---- waiting (wait.c) ---- */

/* Begins a call: beats and saves the place. SL_FAILED once the run has ended; if the coordinate has failed before
 * (sl_fail), for example when it ends its started calls, this ends the run. */
int sl_local_enter(struct sl_local_coordinate *me, const char *verb, const char *object, const char *site);

/* Waits until PEER has raised WORD to TARGET; STAMP is this value's stamp (NULL: none). SL_FAILED once the run has
 * ended. */
int sl_local_wait(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target, int peer,
                  const struct sl_local_stamp *stamp);

/* For a word that the last of several peers raises: a peer that has not arrived, because it has not raised its own WORD
 * to TARGET. */
struct sl_local_missing {
    int peer; /* -1: none is known */
    struct sl_local_word *word;
    uint32_t target;
};
/* Finds such a peer for the call ARG of ME. SL_FAILED if all peers have arrived, and the run ends because calls
 * differ. */
struct sl_local_lack {
    int (*find)(struct sl_local_coordinate *me, const void *arg, struct sl_local_missing *missing);
    const void *arg;
};

/* As sl_local_wait, for a word that the last of several peers raises. */
int sl_local_wait_for_all(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target,
                          const struct sl_local_lack *lack, const struct sl_local_stamp *stamp);

/* ---- groups (groups.c), collectives (collectives.c), channels (channel.c), lines (line.c) ---- */

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

const char *sl_local_line_open(struct sl_spmd *self, struct sl_engine_line *line);
int sl_local_line_close(struct sl_spmd *self, struct sl_engine_line *line);
void sl_local_line_tell(struct sl_spmd *self, struct sl_engine_line *line, uint32_t count, const void *message,
                        const bool *to);
int sl_local_line_hear(struct sl_spmd *self, struct sl_engine_line *line, int position, uint32_t count, bool waits);
bool sl_local_line_heard(const struct sl_engine_line *line, int position, uint32_t count);
const void *sl_local_line_message(const struct sl_engine_line *line, int position, uint32_t count);
void sl_local_lines_close(struct sl_local_run *run);

SL_END_C
#endif
