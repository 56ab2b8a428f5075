/* engine.h - internals of the mpi engine: one process per coordinate, started by a launcher (mpirun, srun).
 *
 * Data goes point to point, on a communicator made anew for each run, so a wait always knows its peer. Groups and
 * channels have their own tags on it: opening one needs no communication.
 *
 * All other communication is messages of struct sl_mpi_message on a communicator that lives as long as the process.
 * Processes read them when they wait, call, or report that they compute (sl_progress); without trouble there are none.
 *
 * - A waiting process asks its peer every tick; the answer is the sign of life, and names the peer's own wait
 * (verdict.c). So time limits count from the last answer, and one peer's silence is not blamed on another.
 *
 * - A process that finds that the run cannot go on proposes a verdict to the arbiter, the first process. The arbiter
 * ends the run with the first proposal that it gets, and sends it to all: all have the same verdict.
 *
 * - A process that receives the end withdraws its receives, so that nothing writes into its program's memory any more,
 * and reports this to the others, which may then free the memory of their sends.
 *
 * Before and after a run, and before they exit, all processes meet (process.c). */
#ifndef SL_COLLECTIVES_MPI_ENGINE_H
#define SL_COLLECTIVES_MPI_ENGINE_H

#include <mpi.h>

#include "collectives/engines.h"
#include "collectives/mpi/board.h"
#include "collectives/operations.h"
#include "collectives/verdict.h"
#include "spmd/set.h"

SL_BEGIN_C

/* ---- this process (process.c) ---- */

/* MPI has one state per process, and so has this engine. */
struct sl_mpi_process {
    bool open;
    MPI_Comm comm; /* all processes: meetings and messages */
    int rank, size;
    double timeout; /* seconds: the last opened engine's */
    int here;       /* number of processes on this host */
    int largest_tag;
    bool spin;    /* every process has its own core */
    bool unbound; /* all processes are on this host and share its cores; none is bound to some of them */
    int speaker;  /* rank of the printing process: the first process, or the one with the verdict; -1: not this one */
    bool lost;    /* a process does not answer any more: MPI cannot be left in order */
    bool parting; /* a process has left */
    struct sl_mpi_run *run;       /* the current run, or NULL */
    struct sl_mpi_run *abandoned; /* runs whose memory MPI may still read and write */
    int runs;                     /* number of runs so far */
    bool begun;                   /* a run has begun: all processes know how it ends */
};

struct sl_mpi_process *sl_mpi_process(void);

/* Starts MPI, once. If another process of this host is stopped for TIMEOUT seconds meanwhile, or if the start takes 30
 * s longer than TIMEOUT, this process ends with a line on stderr: calls of MPI cannot be given up. */
int sl_mpi_open(double timeout, struct sl_error *error);
bool sl_mpi_speaks(void);
bool sl_mpi_reports(void);

/* is_neighbour: whether the process of RANK is on this host and visible from here; if so, whether it has ended, or is
 * stopped. */
bool sl_mpi_is_neighbour(int rank);
bool sl_mpi_is_gone(int rank);
bool sl_mpi_is_stopped_here(int rank);
/* Its position among the processes of its host. */
int sl_mpi_place_of(int rank);
/* A process of this host, stopped for the timeout, or -1. Waits call this repeatedly. */
int sl_mpi_find_stopped(void);

/* Between catch and release, SIGTERM is also recorded: launchers send it to the remaining processes when one has died,
 * about a second before they kill them. */
void sl_mpi_catch_sigterm(void);
void sl_mpi_release_sigterm(void);
bool sl_mpi_terminated(void);

/* All processes meet and exchange one of these. */
enum sl_mpi_occasion { SL_MPI_START, SL_MPI_FINISH, SL_MPI_CLOSE, SL_MPI_LEAVE };
struct sl_mpi_attendance {
    int32_t occasion, number; /* of the run */
    int32_t status;
    int32_t bytes; /* at the start: bytes of the signature, which is sent if hashes differ; and its hash */
    uint64_t hash;
};
void sl_mpi_meet(const struct sl_mpi_attendance *attending);
/* Whether all have come. Does not wait. */
bool sl_mpi_have_met(void);

/* A process of this host with all others waiting for it, outside of runs; or an error of MPI. */
struct sl_mpi_missing {
    int rank;
    bool stopped; /* it has been stopped for the timeout; otherwise it has ended */
    int code;     /* rank -1: MPI's error */
};
/* Waits until all have come; or, in general, until REQUEST, which needs all processes, has ended. False if a process is
 * missing: the process is then `lost`, and the first of this host to find out prints it. */
bool sl_mpi_await_all(struct sl_mpi_missing *missing);
bool sl_mpi_await(MPI_Request *request, struct sl_mpi_missing *missing);
/* Describes the missing process: as a coordinate, unless MESH is NULL. WHEN is, for example, "before the run began".
 * Returns SL_FAILED. */
int sl_mpi_report_missing(const struct sl_mesh *mesh, const struct sl_mpi_missing *missing, const char *when,
                          struct sl_error *error);
const struct sl_mpi_attendance *sl_mpi_attendance(int rank);

/* ---- the processes of this host, also before MPI has started (neighbours.c) ---- */

/* Rank in the launcher's environment; 0: none. The first call must be on the main thread. */
int sl_mpi_announced_rank(void);

/* Whether this process prints for the job: the first caller of this host, as long as it lives; a process without a
 * launcher always does. */
bool sl_mpi_claim_word(void);
/* Whether a living process prints for the job. */
bool sl_mpi_word_is_claimed(void);
/* Called before this process ends, if it prints: waits, at most MOST seconds, until all other running processes of this
 * host and program have asked. A later one would count as the first. */
void sl_mpi_keep_word(double most);

bool sl_mpi_is_stopped(int pid);
/* The id of a stopped process of this job, or -1. Checks SUSPECT first. Unless ALONE is set, one process of this host
 * checks all others, which check only that one. */
int sl_mpi_find_stopped_sibling(int suspect, bool alone, int *rank);
/* say: reports a process stopped too long to the others of this host; is_said: whether another process has. */
void sl_mpi_say_stopped(void);
bool sl_mpi_is_said_stopped(void);
/* Leaves the checking to others. */
void sl_mpi_stop_watching(void);

/* Time for which the same process has been seen stopped. */
struct sl_mpi_standing {
    int who; /* -1: none */
    double seconds, looked;
};
/* Adds to the time if WHO is the same as before. The time between two checks counts at most MOST, since this process
 * itself may not have run. Returns the seconds. */
double sl_mpi_count_standing(struct sl_mpi_standing *standing, int who, double most);

/* ---- while MPI blocks (watchdog.c) ---- */

/* Between guard and unguard a thread ends this process if MPI has not STARTED, or ENDED (WHAT), in time. */
int sl_mpi_guard(const char *what, double timeout, struct sl_error *error);
void sl_mpi_unguard(void);

/* ---- shared memory of MPI's (segments.c) ---- */

/* Collective over HOST: unlinks MPI's shared memory once all have it mapped. */
void sl_mpi_hide_segments(MPI_Comm host);
/* Called before MPI is left. */
void sl_mpi_show_segments(void);
/* Removes the segments made so far. Called before all processes of this job end while MPI starts. */
void sl_mpi_remove_segments(void);

/* ---- memory shared by processes of one host (shared.c) ---- */

/* Identifies shared memory to other processes. */
struct sl_mpi_origin {
    int64_t pid, file, device, inode; /* file -1: none */
};

/* Returns new zeroed memory of BYTES without a file name; NULL on failure. Others can map it until its maker stops
 * sharing it; mapped memory stays until it is unmapped. */
void *sl_mpi_share(size_t bytes, struct sl_mpi_origin *origin);
void sl_mpi_stop_sharing(struct sl_mpi_origin *origin);
/* Maps memory made by another process; NULL: not visible from here. */
void *sl_mpi_share_of(size_t bytes, const struct sl_mpi_origin *origin);
void sl_mpi_unmap(void *memory, size_t bytes);
/* Collective over HOST: the same memory for all processes. NULL everywhere if it fails, or if some processes do not see
 * each other. */
void *sl_mpi_share_with_all(MPI_Comm host, size_t bytes);
/* The same for a file without a name, from which each process maps the parts it needs. -1: failed. */
int sl_mpi_share_file_with_all(MPI_Comm host, size_t bytes);
/* Maps BYTES of it from OFFSET on; NULL on failure. */
void *sl_mpi_map(int file, size_t offset, size_t bytes);

/* ---- sleeping (bell.c) ---- */

/* Collective over HOST. Without memory for all there are no bells, and waits poll MPI. */
void sl_mpi_bells_open(MPI_Comm host);
bool sl_mpi_has_bells(void);
/* Whether all processes are on this host, and have bells: then a bell rings for each message of MPI's. */
bool sl_mpi_bells_tell_all(void);
/* Wakes the process of RANK, if it sleeps on this host: shared memory holds data for it. */
void sl_mpi_ring(int rank);
/* The same: MPI has a message for it. */
void sl_mpi_ring_for_letter(int rank);
/* ring_for_room: the same if it wants room: a message has been read. A process calls want_room before it checks for
 * room once more. */
void sl_mpi_ring_for_room(int rank);
void sl_mpi_want_room(bool wants);
/* How often this process's bell has rung, in all and for MPI. */
uint32_t sl_mpi_rings(void);
uint32_t sl_mpi_letters(void);
/* Sleeps until the bell has rung more often than RINGS, at most NS nanoseconds (below a second). There must be bells.
 */
void sl_mpi_sleep(uint32_t rings, long ns);

/* ---- the beginning of a run (start.c) ---- */

/* Meets all processes and compares their signatures. SL_BAD_INPUT, with the same message everywhere, lists the
 * differences; SL_FAILED names a missing process. */
int sl_mpi_start_together(struct sl_mpi_run *run, struct sl_error *error);

/* ---- a run (engine.c) ---- */

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

struct sl_mpi_run {
    struct sl_mpi_run *next; /* in the list of abandoned runs */
    struct sl_spmd spmd;
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    int number;
    MPI_Comm wire; /* data */

    int groups; /* number opened so far */
    struct sl_mpi_communicator *communicators;
    struct sl_mpi_call *active; /* calls under way */
    struct sl_mpi_channel *channels;
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

/* Ends the run with STATUS and the coordinate's own message. Returns SL_FAILED when the run has ended. */
int sl_mpi_give_up(struct sl_mpi_run *run, int status);

/* ---- waiting (wait.c) ---- */

/* Begins a call: saves the place. SL_FAILED once the run has ended; if the coordinate has failed before (sl_fail), this
 * ends the run. */
int sl_mpi_enter(struct sl_mpi_run *run, const char *verb, const char *object, const char *site);

/* Advances all calls and channels, and reads messages. SL_FAILED once the run has ended. */
int sl_mpi_turn(struct sl_mpi_run *run);

int sl_mpi_wait(struct sl_mpi_run *run, struct sl_mpi_wait *wait);

/* Pauses between two polls: the longer, the higher ROUND is. */
void sl_mpi_pause(int round);

/* Whether an MPI function succeeded; otherwise proposes a verdict with MPI's message. */
bool sl_mpi_ok(struct sl_mpi_run *run, int code, const char *what);

/* Whether REQUEST is under way. Does not change it. */
bool sl_mpi_is_pending(MPI_Request request);
/* Ends all receives under way. */
void sl_mpi_withdraw(struct sl_mpi_run *run);
/* Ends REQUEST, a receive, whether or not its message is coming. If half of the message has arrived, waits for the rest
 * until END at most: its sender may be lost. */
void sl_mpi_withdraw_receive(MPI_Request *request, double end);

/* ---- messages and verdicts (verdict.c) ---- */

/* Allocates room for COUNT messages under way. False without memory. */
bool sl_mpi_provide_messages(int count);
void sl_mpi_listen(struct sl_mpi_run *run);
/* Whether messages are being sent: MPI may have to be polled to send them. */
bool sl_mpi_has_outgoing(void);

/* Called each tick of a wait: asks the peer, and proposes a verdict if the wait cannot end. */
enum { SL_MPI_TICK_MS = 100 };
void sl_mpi_look(struct sl_mpi_run *run);
/* The same in a wait for all, without answers: checks whether one has ended, or is stopped. */
void sl_mpi_look_for_missing(struct sl_mpi_run *run);

/* Proposes to end the run. ABSENT is the coordinate that does not answer, or -1. */
void sl_mpi_propose(struct sl_mpi_run *run, int status, int absent, const struct sl_error *verdict);
/* Waits until the run has ended, after a proposal. Returns SL_FAILED. */
int sl_mpi_await_end(struct sl_mpi_run *run);
/* After a verdict on a wait: waits a moment for the others' reports of their waits. */
void sl_mpi_collect_waits(struct sl_mpi_run *run);

/* Called before this process leaves MPI. */
void sl_mpi_stop_listening(void);

/* say: reports the end of all writes into this coordinate's buffers to the others; is_quiet: whether COORDINATE has
 * reported it. */
void sl_mpi_say_quiet(struct sl_mpi_run *run);
bool sl_mpi_is_quiet(const struct sl_mpi_run *run, int coordinate);
/* Answers neighbours' questions about this coordinate's state. */
void sl_mpi_note_state(struct sl_mpi_run *run);

/* ---- groups and collectives (collectives.c) ---- */

/* Description of a member's call. */
struct sl_mpi_signature {
    int32_t operation, dtype, root, source, destination;
    float scale;
    uint64_t elements, members; /* a hash of the group's members, if compared */
    char site[104];
};

enum sl_mpi_phase { SL_MPI_IDLE, SL_MPI_COMPARING, SL_MPI_FIRST, SL_MPI_SECOND };

/* A call of this member. */
struct sl_mpi_call {
    struct sl_mpi_call *next; /* in the list of active calls */
    bool active;              /* messages are under way, at least of a signature */
    bool claimed;             /* the program has started the call and not ended it */
    struct sl_mpi_run *run;
    struct sl_mpi_communicator *communicator;
    struct sl_collective call; /* its group is the communicator's */
    int slot;
    enum sl_mpi_phase phase;
    struct sl_mpi_buffer *buffer; /* NULL: none is needed */
    int piece;                    /* number of the piece */
    char *sent, *received;       /* in the buffer: blocks to send and receive; NULL: they are in the program's memory */
    MPI_Request *receive, *send; /* [size], adjacent; NULL if mailboxes are used */
    struct sl_mpi_signature mine, *theirs; /* [size]; NULL: mailboxes carry words instead */
    MPI_Request *hear, *tell;              /* [size]; NULL without signatures */
    /* With mailboxes: the slot's rounds before this call; the call's rounds; and how many of these are written, summed
     * and read. */
    uint32_t before, rounds, written, summed, read;
};

struct sl_mpi_communicator {
    struct sl_mpi_communicator *next;
    struct sl_group group;
    int number;
    uint64_t members;                 /* a hash of the members */
    struct sl_mpi_mailbox *mailboxes; /* shared by this host's processes; calls use them. NULL: MPI */
    uint32_t started;                 /* number of calls */
    char name[64];                    /* for verdicts' places */
    struct sl_mpi_call call[SL_MAX_IN_FLIGHT];
    const void **input; /* [size], for sums */
    struct sl_mpi_signature *signatures;
    MPI_Request *requests;
    struct sl_mpi_buffer *buffers; /* the current one first */
};

/* Tags of a slot's messages. */
enum sl_mpi_kind { SL_MPI_SIGNATURE, SL_MPI_FIRST_EXCHANGE, SL_MPI_SECOND_EXCHANGE, SL_MPI_KINDS };
int sl_mpi_tag_of(const struct sl_mpi_communicator *communicator, int slot, enum sl_mpi_kind kind);

int sl_mpi_group_open(struct sl_spmd *self, struct sl_group *group);
int sl_mpi_group_close(struct sl_spmd *self, struct sl_group *group, const char *site);
int sl_mpi_start(struct sl_spmd *self, struct sl_request *request);
int sl_mpi_test(struct sl_spmd *self, struct sl_request *request, bool *done);
int sl_mpi_finish(struct sl_spmd *self, struct sl_request *request);
/* Advances all calls under way. */
void sl_mpi_advance(struct sl_mpi_run *run);
void sl_mpi_groups_withdraw(struct sl_mpi_run *run, double end);
bool sl_mpi_groups_sending(const struct sl_mpi_run *run);
void sl_mpi_groups_close(struct sl_mpi_run *run);

/* ---- data movement of a call (exchange.c) ---- */

/* Allocates the call's buffers. */
int sl_mpi_set_aside(struct sl_mpi_call *c);
/* begin starts the first exchange; move_on continues, exchange by exchange, to SL_MPI_IDLE. */
void sl_mpi_begin(struct sl_mpi_call *c);
void sl_mpi_move_on(struct sl_mpi_call *c);
void sl_mpi_buffers_close(struct sl_mpi_communicator *communicator);

/* Beginning of the block for PEER in the input, and of the block from PEER in the output. */
const char *sl_mpi_input_block(const struct sl_collective *call, int peer);
char *sl_mpi_output_block(const struct sl_collective *call, int peer);

/* Whether CALL moves data between this member and the one at position PEER. */
bool sl_mpi_receives_from(const struct sl_collective *call, int peer);
bool sl_mpi_sends_to(const struct sl_collective *call, int peer);
/* The K-th position to send to, and to receive from: members do not all turn to the same peer at a time. */
int sl_mpi_next_peer(const struct sl_collective *call, int k);
int sl_mpi_previous_peer(const struct sl_collective *call, int k);

/* ---- data movement through shared memory (mailbox.c) ---- */

/* Collective over HOST. There are none without bells; without mailboxes all data goes through MPI. */
void sl_mpi_mailboxes_open(MPI_Comm host);
/* Clears this process's mailboxes: before a run, while no process reads them. */
void sl_mpi_mailboxes_clear(void);
/* Whether data for the process of RANK goes through shared memory. */
bool sl_mpi_shares_memory_with(int rank);
/* Maps mailboxes for a group whose members all share memory: for the first groups, unless a piece of a mailbox has no
 * cache line for each member. False without memory. */
bool sl_mpi_take_mailboxes(struct sl_mpi_communicator *communicator);
void sl_mpi_leave_mailboxes(struct sl_mpi_communicator *communicator);

void sl_mpi_begin_rounds(struct sl_mpi_call *c);
/* Moves the call on as far as possible. Returns whether all rounds are over. */
bool sl_mpi_go_round(struct sl_mpi_call *c);
/* The position of a member that has not done its part of the next round, or -1. */
int sl_mpi_find_laggard(const struct sl_mpi_call *c);

/* ---- differing calls (signature.c) ---- */

/* Ends the run: the call of the member at position PEER, described by WORD, differs, or is over other members (TOGETHER
 * is false). */
void sl_mpi_propose_mismatch(struct sl_mpi_call *c, int peer, uint64_t word, bool together);

/* Converts between CALL and its signature; a call of a signature has only the compared fields. */
struct sl_mpi_signature sl_mpi_signature_of(const struct sl_collective *call);
struct sl_collective sl_mpi_call_of(const struct sl_mpi_signature *signature);

/* Sends the call to the other members: to all in checked mode, otherwise to the receivers of this one's data. */
void sl_mpi_exchange_signatures(struct sl_mpi_call *c);
/* Compares the signatures received since. False if one differs. */
bool sl_mpi_compare(struct sl_mpi_call *c);
/* An uncompared peer with data for or from this one, or -1. */
int sl_mpi_uncompared(const struct sl_mpi_call *c);
/* A peer with a signature on the way from or to it, or -1. */
int sl_mpi_unheard(const struct sl_mpi_call *c);

/* ---- channels (channel.c) ---- */

int sl_mpi_channel_open(struct sl_spmd *self, struct sl_channel *channel);
int sl_mpi_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
int sl_mpi_channel_post(struct sl_spmd *self, struct sl_channel *channel);
int sl_mpi_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
int sl_mpi_channel_release(struct sl_spmd *self, struct sl_channel *channel);
/* Compares the ends of channels whose other end's opening has come since. */
void sl_mpi_channels_match(struct sl_mpi_run *run);
void sl_mpi_channels_withdraw(struct sl_mpi_run *run, double end);
bool sl_mpi_channels_sending(const struct sl_mpi_run *run);
void sl_mpi_channels_close(struct sl_mpi_run *run);

/* Tags on the wire: even for groups, odd for channels. -1 if MPI has no more. */
static inline int sl_mpi_tag(int64_t number, bool of_channel) {
    const int64_t tag = 2 * number + of_channel;
    return tag <= sl_mpi_process()->largest_tag ? (int)tag : -1;
}

SL_END_C
#endif
