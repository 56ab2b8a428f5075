/* word.h - the middle layer of the mpi engine: a run, its waits, and the word of how it ends.
 *
 * Data goes point to point, on a communicator made anew for each run, so a wait always knows its peer.
 *
 * All other communication is messages of struct sl_mpi_message on a communicator that lives as long as the process.
 * Processes read them when they wait, call, or report that they compute (sl_progress); without trouble there are none.
 *
 * - A waiting process asks its peer every tick; the answer is the sign of life, and names the peer's own wait
 * (questions.c). So time limits count from the last answer, and one peer's silence is not blamed on another.
 *
 * - A process that finds that the run cannot go on proposes a verdict to the arbiter, the first process. The arbiter
 * ends the run with the first proposal that it gets, and sends it to all: all have the same verdict.
 *
 * - A process that receives the end withdraws its receives, so that nothing writes into its program's memory any more,
 * and reports this to the others, which may then free the memory of their sends. */
#ifndef SL_COLLECTIVES_MPI_WORD_H
#define SL_COLLECTIVES_MPI_WORD_H

#include <stdatomic.h>

#include "collectives/mpi/process/board.h"
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"
#include "spmd/set.h"

SL_BEGIN_C

/* ---- a run ---- */

/* Condition of a wait. */
struct sl_mpi_wait {
    bool (*ready)(void *of);
    int (*peer)(void *of); /* coordinate of an awaited peer */
    void *of;
    bool rung; /* the bell rings for it, so MPI need not be polled */
};

/* One coordinate's wait, as reported by it. */
enum { SL_MPI_PLACES = 64 }; /* saved texts */
struct sl_mpi_link {
    int coordinate, peer;
    uint32_t number; /* of its waits */
    int place;       /* index in the run's places */
};

/* State of a waiting coordinate, from tick to tick. */
struct sl_mpi_watch {
    double ticked;           /* time of the last question */
    int peer;                /* the awaited peer */
    double silent;           /* seconds without an answer of the peer */
    bool answered;           /* since the last tick */
    double noted;            /* time at which the last note read was written */
    double returned;         /* time since which the peer has reported its return; 0: it has not */
    char last[SL_MPI_PLACE]; /* the peer's place then */
    int asked;               /* the peer of the last link of the run's chain, which has been asked; -1: none */
    int count, places;       /* lengths of the chain */
    uint32_t circle;         /* hash of the circle found, 0 for none; and the time since which it has been there */
    double since;
};

struct sl_mpi_message {
    int32_t kind, run, from;
    int32_t status;  /* verdict: the run's; answer: enum state */
    int32_t peer;    /* verdict: the absent coordinate, or -1; answer: the peer it waits for */
    uint32_t number; /* answer: of its waits; verdict: 1 if it is about a wait, so all report theirs */
    char text[sizeof((struct sl_error *)0)->message]; /* verdict, place, or struct sl_waiting */
};

/* A verdict of an engine above, by any of its threads; the program's thread proposes it, as MPI has one thread. */
struct sl_mpi_ending {
    _Atomic int state; /* enum: the first verdict counts */
    struct sl_error verdict;
    int absent;
};
enum { SL_MPI_NO_ENDING, SL_MPI_BEING_WRITTEN, SL_MPI_WRITTEN, SL_MPI_PROPOSED };

/* One of the kinds of data on the wire: calls over groups, channels, and lines. */
struct sl_mpi_carrier {
    void (*advance)(struct sl_mpi_run *run);              /* as far as possible */
    void (*withdraw)(struct sl_mpi_run *run, double end); /* ends all receives, as sl_mpi_withdraw_receive does */
    bool (*is_sending)(const struct sl_mpi_run *run);
    void (*close)(struct sl_mpi_run *run); /* when the run is over */
};
enum { SL_MPI_CARRIERS = 3 };

struct sl_mpi_run {
    struct sl_mpi_run *next; /* in the list of abandoned runs */
    struct sl_spmd spmd;
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    int number;
    MPI_Comm wire; /* data */

    const struct sl_mpi_carrier *const *carrier; /* [SL_MPI_CARRIERS] */
    int groups;                                  /* number opened so far */
    struct sl_mpi_communicator *communicators;
    struct sl_mpi_call *active; /* calls under way */
    struct sl_mpi_channel *channels;
    struct sl_mpi_line *lines;
    int unmatched;     /* channels whose other end's opening has not come */
    int remote;        /* channels over MPI */
    bool moves_by_mpi; /* some of the active calls use MPI */
    uint32_t letters;  /* number of the bell's rings for MPI at the last poll */
    bool overdue;      /* MPI must be polled in any case */

    struct sl_last_call place;
    struct sl_mpi_wait *wait; /* NULL: not waiting */
    bool noted;               /* a note of the wait has been written */
    uint32_t waits;
    struct sl_mpi_watch watch;
    struct sl_mpi_link *chain;          /* [processes]: beginning with this coordinate, each waits for the next */
    char (*place_called)[SL_MPI_PLACE]; /* [SL_MPI_PLACES]: the different places of the chain */
    bool returned;                      /* the program has returned */

    struct sl_mpi_ending ending;
    bool proposed; /* a verdict, at this time: */
    double proposed_at;
    struct sl_mpi_message proposal;
    int status; /* not SL_OK: the run has ended */
    struct sl_error verdict;
    int absent;      /* the coordinate without which the run ended, or -1 */
    uint64_t *told;  /* a set: the processes with reported waits after the end of the run; */
    bool heard;      /* and whether any has */
    bool still;      /* this process has withdrawn its receives */
    uint64_t *quiet; /* a set: the other processes that have done so, or are absent */
};

static inline struct sl_mpi_run *sl_mpi_self(const struct sl_spmd *self) { return self->state; }

/* ---- messages and verdicts (questions.c) ---- */

/* Allocates room for COUNT messages under way. False without memory. */
bool sl_mpi_provide_messages(int count);
void sl_mpi_listen(struct sl_mpi_run *run);
/* Whether messages are being sent: MPI may have to be polled to send them. */
bool sl_mpi_has_outgoing(void);

/* Called each tick of a wait: asks the peer, and proposes a verdict if the wait cannot end. */
void sl_mpi_look(struct sl_mpi_run *run);
/* The same in a wait for all, without answers: checks whether one has ended, or is stopped. */
void sl_mpi_look_for_missing(struct sl_mpi_run *run);

/* Proposes to end the run. ABSENT is the coordinate that does not answer, or -1. */
void sl_mpi_propose(struct sl_mpi_run *run, int status, int absent, const struct sl_error *verdict);

/* Called before this process leaves MPI. */
void sl_mpi_stop_listening(void);

/* say: reports the end of all writes into this coordinate's buffers to the others; is_quiet: whether COORDINATE has
 * reported it. */
void sl_mpi_say_quiet(struct sl_mpi_run *run);
bool sl_mpi_is_quiet(const struct sl_mpi_run *run, int coordinate);
/* Whether data is on its way from here. */
bool sl_mpi_is_sending(const struct sl_mpi_run *run);

/* Answers neighbours' questions about this coordinate's state. */
void sl_mpi_note_state(struct sl_mpi_run *run);

/* ---- waiting (wait.c) ---- */

/* Begins a call: saves the place. SL_FAILED once the run has ended; if the coordinate has failed before (sl_fail), this
 * ends the run. */
int sl_mpi_enter(struct sl_mpi_run *run, const char *verb, const char *object, const char *site);

/* Advances all calls and channels, and reads messages. SL_FAILED once the run has ended. */
int sl_mpi_turn(struct sl_mpi_run *run);

int sl_mpi_wait(struct sl_mpi_run *run, struct sl_mpi_wait *wait);

/* Ends all receives under way. */
void sl_mpi_withdraw(struct sl_mpi_run *run);
/* Whether an MPI function succeeded; otherwise proposes a verdict with MPI's message. */
bool sl_mpi_ok(struct sl_mpi_run *run, int code, const char *what);

/* Waits until the run has ended, after a proposal. Returns SL_FAILED. */
int sl_mpi_await_end(struct sl_mpi_run *run);
/* Ends the run: this coordinate waits for itself. Returns SL_FAILED. */
int sl_mpi_wait_for_oneself(struct sl_mpi_run *run);
/* After a verdict on a wait: waits a moment for the others' reports of their waits. */
void sl_mpi_collect_waits(struct sl_mpi_run *run);

/* Ends the run with STATUS and the coordinate's own message. Returns SL_FAILED when the run has ended. */
int sl_mpi_give_up(struct sl_mpi_run *run, int status);

SL_END_C
#endif
