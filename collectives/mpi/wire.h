/* wire.h - the upper layer of the mpi engine: groups with their calls, channels, and lines. They have their own tags on
 * the run's communicator: opening one needs no communication. */
#ifndef SL_COLLECTIVES_MPI_WIRE_H
#define SL_COLLECTIVES_MPI_WIRE_H

#include "collectives/mpi/word.h"
#include "collectives/operations.h"
#include "collectives/verdict.h"

SL_BEGIN_C

/* Tags on the wire: even for groups, odd for channels. -1 if MPI has no more. */
static inline int sl_mpi_tag(int64_t number, bool of_channel) {
    const int64_t tag = 2 * number + of_channel;
    return tag <= sl_mpi_process()->largest_tag ? (int)tag : -1;
}

/* ---- groups and collectives (collectives.c) ---- */

struct sl_mpi_route;
struct sl_mpi_hosts;

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
    const struct sl_mpi_route *route;
    enum sl_mpi_phase phase;
    struct sl_mpi_buffer *buffer; /* NULL: none is needed */
    int piece;                    /* number of the piece */
    char *sent, *received;       /* in the buffer: blocks to send and receive; NULL: they are in the program's memory */
    MPI_Request *receive, *send; /* [width], adjacent; NULL if only mailboxes are used */
    int width;
    struct sl_call_note mine, *theirs; /* [size]; NULL: mailboxes carry words instead */
    MPI_Request *hear, *tell;          /* [size]; NULL without signatures */
    /* With mailboxes: the slot's rounds before this call; the call's rounds; and how many of these are written, summed
     * and read. */
    uint32_t before, rounds, written, summed, read;
    uint32_t folded, turned; /* likewise, if the call is chained: see chain.c */
    int step;                /* if it is gathered: see hosts.c */
};

struct sl_mpi_communicator {
    struct sl_mpi_communicator *next;
    struct sl_group group;
    int number;
    uint64_t members;                 /* a hash of the members */
    struct sl_mpi_mailbox *mailboxes; /* shared by this host's processes; NULL: all calls use MPI */
    struct sl_mpi_hosts *hosts;       /* NULL: mailboxes are all that calls use */
    uint32_t started;                 /* number of calls */
    char name[64];                    /* for verdicts' places */
    struct sl_mpi_call call[SL_MAX_IN_FLIGHT];
    const void **input; /* [size], for sums */
    struct sl_call_note *signatures;
    MPI_Request *requests;
    struct sl_mpi_buffer *buffers; /* the current one first */
};

int sl_mpi_group_open(struct sl_spmd *self, struct sl_group *group);
int sl_mpi_group_close(struct sl_spmd *self, struct sl_group *group, const char *site);
int sl_mpi_start(struct sl_spmd *self, struct sl_request *request);
int sl_mpi_test(struct sl_spmd *self, struct sl_request *request, bool *done);
int sl_mpi_finish(struct sl_spmd *self, struct sl_request *request);
extern const struct sl_mpi_carrier sl_mpi_groups;

/* ---- a call's tags, peers and blocks (call.c) ---- */

/* Tags of a slot's messages. */
enum sl_mpi_kind { SL_MPI_SIGNATURE, SL_MPI_FIRST_EXCHANGE, SL_MPI_SECOND_EXCHANGE, SL_MPI_KINDS };
int sl_mpi_tag_of(const struct sl_mpi_communicator *communicator, int slot, enum sl_mpi_kind kind);

/* Beginning of the block for PEER in the input, and of the block from PEER in the output. */
const char *sl_mpi_input_block(const struct sl_collective *call, int peer);
char *sl_mpi_output_block(const struct sl_collective *call, int peer);

/* Whether CALL moves data between this member and the one at position PEER. */
bool sl_mpi_receives_from(const struct sl_collective *call, int peer);
bool sl_mpi_sends_to(const struct sl_collective *call, int peer);
/* The K-th position to send to, and to receive from: members do not all turn to the same peer at a time. */
int sl_mpi_next_peer(const struct sl_collective *call, int k);
int sl_mpi_previous_peer(const struct sl_collective *call, int k);

/* ---- data movement of a call (exchange.c) ---- */

/* Allocates the call's buffers. */
int sl_mpi_set_aside(struct sl_mpi_call *c);
/* begin starts the first exchange; move_on continues, exchange by exchange, to SL_MPI_IDLE. */
void sl_mpi_begin(struct sl_mpi_call *c);
void sl_mpi_move_on(struct sl_mpi_call *c);
void sl_mpi_buffers_close(struct sl_mpi_communicator *communicator);

/* ---- data movement through shared memory (mailbox.c) ---- */

/* Collective over HOST. There are none without bells; without mailboxes all data goes through MPI. */
void sl_mpi_mailboxes_open(MPI_Comm host);
/* Clears this process's mailboxes: before a run, while no process reads them. */
void sl_mpi_mailboxes_clear(void);
/* Whether data for the process of RANK goes through shared memory. */
bool sl_mpi_shares_memory_with(int rank);
/* Maps mailboxes for a group whose members all share memory, or those of each host: for the first groups, unless a
 * piece of a mailbox has no cache line for each member. False without memory. */
bool sl_mpi_take_mailboxes(struct sl_mpi_communicator *communicator);
void sl_mpi_leave_mailboxes(struct sl_mpi_communicator *communicator);

/* ---- differing calls (signature.c) ---- */

/* Ends the run: the call of the member at position PEER, described by WORD, differs, or is over other members (TOGETHER
 * is false). */
void sl_mpi_propose_mismatch(struct sl_mpi_call *c, int peer, uint64_t word, bool together);

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
extern const struct sl_mpi_carrier sl_mpi_channels;

/* ---- lines for an engine above, which uses neither groups nor channels of this one (line.c) ---- */

const char *sl_mpi_line_open(struct sl_spmd *self, struct sl_engine_line *line);
int sl_mpi_line_close(struct sl_spmd *self, struct sl_engine_line *line);
void sl_mpi_line_tell(struct sl_spmd *self, struct sl_engine_line *line, uint32_t count, const void *message,
                      const bool *to);
int sl_mpi_line_hear(struct sl_spmd *self, struct sl_engine_line *line, int position, uint32_t count, bool waits);
bool sl_mpi_line_heard(const struct sl_engine_line *line, int position, uint32_t count);
const void *sl_mpi_line_message(const struct sl_engine_line *line, int position, uint32_t count);
extern const struct sl_mpi_carrier sl_mpi_lines;

SL_END_C
#endif
