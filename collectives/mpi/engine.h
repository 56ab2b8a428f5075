/* engine.h - inside the mpi engine: a process per coordinate, as a launcher (mpirun, srun) has started them.
 *
 * Data goes point to point, on a communicator that each run makes anew, so that a wait always knows the peer that it is
 * for. Groups and channels have tags of their own there: to open one needs no communication.
 *
 * All that is not data are messages of struct sl_mpi_message on a communicator that lives as long as the process. They
 * are read by everyone who waits, calls, or says "still here" (sl_progress); while all goes well there are none.
 *
 * - Who waits asks its peer every tick; the answer is the sign of life, and says what the peer itself waits for
 *   (verdict.c). So time limits count from the last answer, and one peer's silence is not blamed on another.
 *
 * - Who finds out that the run cannot go on, proposes a verdict to the arbiter, the first process. The arbiter ends the
 *   run by the first one that it gets, and tells everyone: all know the same verdict.
 *
 * - Who hears of the end withdraws its receives, so that nothing writes into its program's memory any more, and tells
 *   the others, which may then free what they were sending.
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

/* MPI has one state a process, and so has this engine. */
struct sl_mpi_process {
    bool open;
    MPI_Comm comm; /* of all processes: meetings and messages */
    int rank, size;
    double timeout; /* seconds: the latest engine's */
    int here;       /* processes on this host */
    int largest_tag;
    bool spin;                    /* every process has a core of its own */
    bool unbound;                 /* all processes are on this host and share its cores; none is bound to some */
    int speaker;                  /* who prints: the first process, or who knows the verdict; -1: not this one */
    bool lost;                    /* a process does not answer any more: MPI cannot be left in order */
    bool parting;                 /* a process has left */
    struct sl_mpi_run *run;       /* the one under way, or NULL */
    struct sl_mpi_run *abandoned; /* MPI may still read and write what they hold */
    int runs;                     /* so far */
    bool begun;                   /* one of them has: all know of its end */
};

struct sl_mpi_process *sl_mpi_process(void);

/* Starts MPI, once. Where another process of this host stands still for TIMEOUT seconds meanwhile, or where all
 * together takes 30 s longer than TIMEOUT, this one ends with a line on stderr: MPI cannot be told to give up. */
int sl_mpi_open(double timeout, struct sl_error *error);
bool sl_mpi_speaks(void);
bool sl_mpi_reports(void);

/* Whether the process of RANK is on this host, can be seen from here, and then, whether it has ended, or is stopped. */
bool sl_mpi_is_neighbour(int rank);
bool sl_mpi_is_gone(int rank);
bool sl_mpi_is_stopped_here(int rank);
/* Its position among those of its host. */
int sl_mpi_place_of(int rank);
/* A process of this host that has been stopped for the timeout, or -1. Waits ask again and again. */
int sl_mpi_find_stopped(void);

/* From catch to release SIGTERM is noted, besides what it did before: launchers send it to those who are left when a
 * process has died, a second or so before they kill them. */
void sl_mpi_catch_sigterm(void);
void sl_mpi_release_sigterm(void);
bool sl_mpi_terminated(void);

/* All processes meet, and each tells all the same few things. */
enum sl_mpi_occasion { SL_MPI_START, SL_MPI_FINISH, SL_MPI_CLOSE, SL_MPI_LEAVE };
struct sl_mpi_attendance {
    int32_t occasion, number; /* of the run */
    int32_t status;
    int32_t bytes; /* start: of the signature that is sent if the hashes differ; and its hash */
    uint64_t hash;
};
void sl_mpi_meet(const struct sl_mpi_attendance *attending);
/* Whether all have come. Waits for nobody. */
bool sl_mpi_have_met(void);

/* Somebody of this host who keeps all others waiting, outside of runs; or what MPI says. */
struct sl_mpi_missing {
    int rank;
    bool stopped; /* for the timeout; otherwise it has ended */
    int code;     /* rank -1: MPI's error */
};
/* Waits until all have come, or, more generally, until REQUEST has ended for which all are needed. False when somebody
 * is missing: the process is lost, and has said so if it is the first of this host to find out. */
bool sl_mpi_await_all(struct sl_mpi_missing *missing);
bool sl_mpi_await(MPI_Request *request, struct sl_mpi_missing *missing);
/* Puts into words who is missing: a coordinate, unless MESH is NULL. WHEN is "before the run began". SL_FAILED. */
int sl_mpi_report_missing(const struct sl_mesh *mesh, const struct sl_mpi_missing *missing, const char *when,
                          struct sl_error *error);
const struct sl_mpi_attendance *sl_mpi_attendance(int rank);

/* ---- the processes of this host, also before MPI has started (neighbours.c) ---- */

/* What launchers have told by the environment; 0: nothing. The first call is the main thread's. */
int sl_mpi_announced_rank(void);

/* Whether this process speaks for the job: the first one of this host that asks does, as long as it lives, and one that
 * no launcher has started. */
bool sl_mpi_claim_word(void);
/* Whether one that lives does. */
bool sl_mpi_word_is_claimed(void);
/* Before this process ends, if it does: waits until all others of this host and program that run have asked, at most
 * MOST seconds. Who asks later would be the first. */
void sl_mpi_keep_word(double most);

bool sl_mpi_is_stopped(int pid);
/* The id of a process of this job that is stopped, -1: there is none. The one looked at first is SUSPECT. Unless it is
 * ALONE in that, one process of this host looks at all others, which look at it alone. */
int sl_mpi_find_stopped_sibling(int suspect, bool alone, int *rank);
/* Lets the others of this host know that one has stood still for too long; whether another one has. */
void sl_mpi_say_stopped(void);
bool sl_mpi_is_said_stopped(void);
/* Leaves the looking to others. */
void sl_mpi_stop_watching(void);

/* For how long the same one has been seen to stand still. */
struct sl_mpi_standing {
    int who; /* -1: nobody */
    double seconds, looked;
};
/* Counts on, if WHO is who it was; the time between two looks counts at most MOST, since this process may not have run,
 * either. Returns the seconds. */
double sl_mpi_count_standing(struct sl_mpi_standing *standing, int who, double most);

/* ---- while MPI cannot be asked (watchdog.c) ---- */

/* From guard to unguard a thread ends this process where MPI is not STARTED, or ENDED (as WHAT says) in time. */
int sl_mpi_guard(const char *what, double timeout, struct sl_error *error);
void sl_mpi_unguard(void);

/* ---- shared memory of MPI's (segments.c) ---- */

/* Collective over HOST: takes the names of MPI's shared memory away, where all have it mapped. */
void sl_mpi_hide_segments(MPI_Comm host);
/* Before MPI is left. */
void sl_mpi_show_segments(void);
/* Before all processes of this job end while MPI starts: removes what they have made so far. */
void sl_mpi_remove_segments(void);

/* ---- memory that processes of one host share (shared.c) ---- */

/* Where others find it. */
struct sl_mpi_origin {
    int64_t pid, file, device, inode; /* file -1: nowhere */
};

/* New memory of BYTES, all zeros, that has no name; NULL: there is none. Others can map it until its maker stops
 * sharing it; what has been mapped stays until it is unmapped. */
void *sl_mpi_share(size_t bytes, struct sl_mpi_origin *origin);
void sl_mpi_stop_sharing(struct sl_mpi_origin *origin);
/* The memory that another process has made; NULL: it is not seen from here. */
void *sl_mpi_share_of(size_t bytes, const struct sl_mpi_origin *origin);
void sl_mpi_unmap(void *memory, size_t bytes);
/* Collective over HOST: the same memory for all of it. NULL everywhere where it fails, or some do not see each other.
 */
void *sl_mpi_share_with_all(MPI_Comm host, size_t bytes);
/* The same of a file without a name, from which each maps what it needs. -1: there is none. */
int sl_mpi_share_file_with_all(MPI_Comm host, size_t bytes);
/* BYTES of it from OFFSET on; NULL where that fails. */
void *sl_mpi_map(int file, size_t offset, size_t bytes);

/* ---- sleeping (bell.c) ---- */

/* Collective over HOST. Without memory for all there are no bells, and waits ask MPI again and again. */
void sl_mpi_bells_open(MPI_Comm host);
bool sl_mpi_has_bells(void);
/* Whether all processes are on this host, and have bells: then they ring for each message of MPI's. */
bool sl_mpi_bells_tell_all(void);
/* Wakes the process of RANK, if it sleeps here: there is something for it in shared memory. */
void sl_mpi_ring(int rank);
/* The same: MPI has something for it. */
void sl_mpi_ring_for_letter(int rank);
/* The same, if it has said that it wants room: a message has been read. To be said before looking for it once more. */
void sl_mpi_ring_for_room(int rank);
void sl_mpi_want_room(bool wants);
/* How often this process's bell has rung, and how often for MPI. */
uint32_t sl_mpi_rings(void);
uint32_t sl_mpi_letters(void);
/* Sleeps until the bell has rung more often than RINGS, for NS (below a second) at most. There must be bells. */
void sl_mpi_sleep(uint32_t rings, long ns);

/* ---- the beginning of a run (start.c) ---- */

/* Meets all processes, and compares what they mean to run. SL_BAD_INPUT, with the same message everywhere, says how it
 * differs; SL_FAILED who has not come. */
int sl_mpi_start_together(struct sl_mpi_run *run, struct sl_error *error);

/* ---- a run (engine.c) ---- */

/* Something that a peer has to do. */
struct sl_mpi_wait {
    bool (*ready)(void *of);
    int (*peer)(void *of); /* coordinate of a peer that it is not ready for */
    void *of;
    bool rung; /* the bell rings for it, and MPI need not be asked */
};

/* One coordinate's wait, as it told it. */
enum { SL_MPI_PLACES = 64 }; /* texts that are kept */
struct sl_mpi_link {
    int coordinate, peer;
    uint32_t number; /* of its waits */
    int place;       /* where: one of the run's */
};

/* What a waiting coordinate finds out from tick to tick. */
struct sl_mpi_watch {
    double ticked;           /* when it last asked */
    int peer;                /* whom it waits for */
    double silent;           /* seconds for which the peer has not answered */
    bool answered;           /* since the last tick */
    double noted;            /* when it wrote the note that was read last */
    double returned;         /* since when the peer has said that it has returned; 0: it has not */
    char last[SL_MPI_PLACE]; /* where the peer was then */
    int asked;               /* whom the last link of the run's chain waits for; -1: nobody has been asked */
    int count, places;       /* of the chain */
    uint32_t circle;         /* what tells the circle found from others, 0 for none; and since when it has been there */
    double since;
};

struct sl_mpi_message {
    int32_t kind, run, from;
    int32_t status;  /* verdict: the run's; answer: enum state */
    int32_t peer;    /* verdict: the absent coordinate, or -1; answer: whom it waits for */
    uint32_t number; /* answer: of its waits; verdict: 1 where it is on a wait, so that all tell theirs */
    char text[sizeof((struct sl_error *)0)->message]; /* verdict, place, or struct sl_waiting */
};

struct sl_mpi_run {
    struct sl_mpi_run *next; /* abandoned */
    struct sl_spmd spmd;
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    int number;
    MPI_Comm wire; /* data */

    int groups; /* opened so far */
    struct sl_mpi_communicator *communicators;
    struct sl_mpi_call *active; /* calls that are under way */
    struct sl_mpi_channel *channels;
    int unmatched;     /* channels whose other end is not known yet */
    int remote;        /* channels that MPI carries */
    bool moves_by_mpi; /* some of the active calls */
    uint32_t letters;  /* MPI has been asked since the bell had rung for so many of its messages */
    bool overdue;      /* or it is to be asked in any case */

    struct sl_last_call place;
    struct sl_mpi_wait *wait; /* NULL: it does not wait */
    bool noted;               /* there is a note of the wait */
    uint32_t waits;
    struct sl_mpi_watch watch;
    struct sl_mpi_link *chain;          /* [processes]: from this coordinate on, each waits for the next, */
    char (*place_called)[SL_MPI_PLACE]; /* [SL_MPI_PLACES]: in places that differ */
    bool returned;                      /* the program has */

    bool proposed; /* a verdict, at that time */
    double proposed_at;
    struct sl_mpi_message proposal;
    int status; /* not SL_OK: the run has ended */
    struct sl_error verdict;
    int absent;      /* the coordinate that the run had to be ended without, or -1 */
    uint64_t *told;  /* a set: who has told what it waited for when the run ended; */
    bool heard;      /* and whether anybody has */
    bool still;      /* the receives have been withdrawn */
    uint64_t *quiet; /* a set: the others of which the same is known, or which are absent */
};

static inline struct sl_mpi_run *sl_mpi_self(const struct sl_spmd *self) { return self->state; }

/* Ends the run with STATUS and the coordinate's own message. Returns SL_FAILED when the run has ended. */
int sl_mpi_give_up(struct sl_mpi_run *run, int status);

/* ---- waiting (wait.c) ---- */

/* Begins a call: notes the place. SL_FAILED once the run has ended; a coordinate that has failed (sl_fail) and calls
 * once more ends it. */
int sl_mpi_enter(struct sl_mpi_run *run, const char *verb, const char *object, const char *site);

/* Moves everything on that is under way, and reads messages. SL_FAILED once the run has ended. */
int sl_mpi_turn(struct sl_mpi_run *run);

int sl_mpi_wait(struct sl_mpi_run *run, struct sl_mpi_wait *wait);

/* Between two looks at something: the ROUND-th pause is the longer, the higher. */
void sl_mpi_pause(int round);

/* Whether an MPI function succeeded; otherwise proposes a verdict that says what MPI has to say. */
bool sl_mpi_ok(struct sl_mpi_run *run, int code, const char *what);

/* Whether REQUEST is under way. It stays as it is. */
bool sl_mpi_is_pending(MPI_Request request);
/* Ends all receives that are under way. */
void sl_mpi_withdraw(struct sl_mpi_run *run);
/* Ends REQUEST, a receive, whether or not its message is coming. One whose message is half here is waited for, until
 * END at most: its sender may be lost. */
void sl_mpi_withdraw_receive(MPI_Request *request, double end);

/* ---- messages and verdicts (verdict.c) ---- */

/* Sets aside room for COUNT messages under way. False without memory. */
bool sl_mpi_provide_messages(int count);
void sl_mpi_listen(struct sl_mpi_run *run);
/* Whether messages are on their way out: MPI may have to be asked to send them. */
bool sl_mpi_has_outgoing(void);

/* Where a wait has taken a tick, and another: asks, and proposes a verdict where it is in vain. */
enum { SL_MPI_TICK_MS = 100 };
void sl_mpi_look(struct sl_mpi_run *run);
/* The same for who waits for all, to whom nobody answers: whether one has ended, or stands still. */
void sl_mpi_look_for_missing(struct sl_mpi_run *run);

/* Proposes to end the run. ABSENT is the coordinate that does not answer any more, or -1. */
void sl_mpi_propose(struct sl_mpi_run *run, int status, int absent, const struct sl_error *verdict);
/* Waits until the run has ended, as was proposed. Returns SL_FAILED. */
int sl_mpi_await_end(struct sl_mpi_run *run);
/* Of a run that has ended so: waits a moment for what the others still have to tell of their waits. */
void sl_mpi_collect_waits(struct sl_mpi_run *run);

/* Before this process leaves MPI. */
void sl_mpi_stop_listening(void);

/* Tells the others that nothing writes into this coordinate's buffers any more; whether COORDINATE has. */
void sl_mpi_say_quiet(struct sl_mpi_run *run);
bool sl_mpi_is_quiet(const struct sl_mpi_run *run, int coordinate);
/* Tells neighbours that have asked what this coordinate is at. */
void sl_mpi_note_state(struct sl_mpi_run *run);

/* ---- groups and collectives (collectives.c) ---- */

/* What a member calls. */
struct sl_mpi_signature {
    int32_t operation, dtype, root, source, destination;
    float scale;
    uint64_t elements, members; /* a hash of the group's, where it is compared */
    char site[104];
};

enum sl_mpi_phase { SL_MPI_IDLE, SL_MPI_COMPARING, SL_MPI_FIRST, SL_MPI_SECOND };

/* A call of this member. */
struct sl_mpi_call {
    struct sl_mpi_call *next; /* active */
    bool active;              /* something is under way, be it a signature */
    bool claimed;             /* the program has started the call and not ended it */
    struct sl_mpi_run *run;
    struct sl_mpi_communicator *communicator;
    struct sl_collective call; /* its group is the communicator's */
    int slot;
    enum sl_mpi_phase phase;
    struct sl_mpi_buffer *buffer;          /* NULL: none is needed */
    int piece;                             /* of it */
    char *sent, *received;                 /* in the buffer: blocks on their way; NULL: in the program's memory */
    MPI_Request *receive, *send;           /* [size], side by side; NULL through mailboxes */
    struct sl_mpi_signature mine, *theirs; /* [size]; NULL: words in mailboxes tell */
    MPI_Request *hear, *tell;              /* [size], where there are signatures */
    /* Through mailboxes: rounds of the slot before this call; of the call, and of these, how many are done. */
    uint32_t before, rounds, written, summed, read;
};

struct sl_mpi_communicator {
    struct sl_mpi_communicator *next;
    struct sl_group group;
    int number;
    uint64_t members;                 /* a hash of them */
    struct sl_mpi_mailbox *mailboxes; /* of this host's processes: calls go through them. NULL: by MPI */
    uint32_t started;                 /* calls */
    char name[64];                    /* for places */
    struct sl_mpi_call call[SL_MAX_IN_FLIGHT];
    const void **input; /* [size], for sums */
    struct sl_mpi_signature *signatures;
    MPI_Request *requests;
    struct sl_mpi_buffer *buffers; /* the one in use first */
};

/* Tags of a slot's messages. */
enum sl_mpi_kind { SL_MPI_SIGNATURE, SL_MPI_FIRST_EXCHANGE, SL_MPI_SECOND_EXCHANGE, SL_MPI_KINDS };
int sl_mpi_tag_of(const struct sl_mpi_communicator *communicator, int slot, enum sl_mpi_kind kind);

int sl_mpi_group_open(struct sl_spmd *self, struct sl_group *group);
int sl_mpi_group_close(struct sl_spmd *self, struct sl_group *group, const char *site);
int sl_mpi_start(struct sl_spmd *self, struct sl_request *request);
int sl_mpi_test(struct sl_spmd *self, struct sl_request *request, bool *done);
int sl_mpi_finish(struct sl_spmd *self, struct sl_request *request);
/* Moves all calls on that are under way. */
void sl_mpi_advance(struct sl_mpi_run *run);
void sl_mpi_groups_withdraw(struct sl_mpi_run *run, double end);
bool sl_mpi_groups_sending(const struct sl_mpi_run *run);
void sl_mpi_groups_close(struct sl_mpi_run *run);

/* ---- what a call moves (exchange.c) ---- */

/* Sets aside the buffers that the call needs. */
int sl_mpi_set_aside(struct sl_mpi_call *c);
/* Begins the first exchange; then, exchange by exchange, on to SL_MPI_IDLE. */
void sl_mpi_begin(struct sl_mpi_call *c);
void sl_mpi_move_on(struct sl_mpi_call *c);
void sl_mpi_buffers_close(struct sl_mpi_communicator *communicator);

/* Where the block for PEER begins in the input, and the block from PEER in the output. */
const char *sl_mpi_input_block(const struct sl_collective *call, int peer);
char *sl_mpi_output_block(const struct sl_collective *call, int peer);

/* Whether CALL moves data between this member and the one at position PEER. */
bool sl_mpi_receives_from(const struct sl_collective *call, int peer);
bool sl_mpi_sends_to(const struct sl_collective *call, int peer);
/* The K-th position to send to, and to receive from: not all members turn to the same one at a time. */
int sl_mpi_next_peer(const struct sl_collective *call, int k);
int sl_mpi_previous_peer(const struct sl_collective *call, int k);

/* ---- the same through shared memory (mailbox.c) ---- */

/* Collective over HOST. There are none without bells; without them all data goes by MPI. */
void sl_mpi_mailboxes_open(MPI_Comm host);
/* Empties this process's: before a run, while nobody looks at them. */
void sl_mpi_mailboxes_clear(void);
/* Whether data goes to the process of RANK through memory. */
bool sl_mpi_shares_memory_with(int rank);
/* Gives mailboxes to a group all of whose members share memory: the first groups have some, unless a piece of a mailbox
 * has no line for each member. False without memory. */
bool sl_mpi_take_mailboxes(struct sl_mpi_communicator *communicator);
void sl_mpi_leave_mailboxes(struct sl_mpi_communicator *communicator);

void sl_mpi_begin_rounds(struct sl_mpi_call *c);
/* Moves the call on as far as it goes. Whether all rounds are over. */
bool sl_mpi_go_round(struct sl_mpi_call *c);
/* The position of a member that has not done its part of the next round, or -1. */
int sl_mpi_find_laggard(const struct sl_mpi_call *c);

/* ---- calls that differ (signature.c) ---- */

/* Ends the run: the call of the member at position PEER, of which WORD tells, differs, or is not over the same members
 * (TOGETHER is false). */
void sl_mpi_propose_mismatch(struct sl_mpi_call *c, int peer, uint64_t word, bool together);

/* What CALL's signature is, and the call that it stands for, as far as calls are compared. */
struct sl_mpi_signature sl_mpi_signature_of(const struct sl_collective *call);
struct sl_collective sl_mpi_call_of(const struct sl_mpi_signature *signature);

/* Tells the others what is called here: all of them in checked mode, else those that it exchanges data with. */
void sl_mpi_exchange_signatures(struct sl_mpi_call *c);
/* Compares the signatures that have come since. False where one differs. */
bool sl_mpi_compare(struct sl_mpi_call *c);
/* A peer that exchanges data with this one and has not been compared yet, or -1. */
int sl_mpi_uncompared(const struct sl_mpi_call *c);
/* A peer from which or to which a signature is on its way, or -1. */
int sl_mpi_unheard(const struct sl_mpi_call *c);

/* ---- channels (channel.c) ---- */

int sl_mpi_channel_open(struct sl_spmd *self, struct sl_channel *channel);
int sl_mpi_channel_acquire(struct sl_spmd *self, struct sl_channel *channel, void **slot);
int sl_mpi_channel_post(struct sl_spmd *self, struct sl_channel *channel);
int sl_mpi_channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot);
int sl_mpi_channel_release(struct sl_spmd *self, struct sl_channel *channel);
/* Compares the ends of channels whose other end has been heard of since. */
void sl_mpi_channels_match(struct sl_mpi_run *run);
void sl_mpi_channels_withdraw(struct sl_mpi_run *run, double end);
bool sl_mpi_channels_sending(const struct sl_mpi_run *run);
void sl_mpi_channels_close(struct sl_mpi_run *run);

/* Tags on the wire: groups have the even ones, channels the odd ones. -1 where MPI has no more. */
static inline int sl_mpi_tag(int64_t number, bool of_channel) {
    const int64_t tag = 2 * number + of_channel;
    return tag <= sl_mpi_process()->largest_tag ? (int)tag : -1;
}

SL_END_C
#endif
