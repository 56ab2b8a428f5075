/* mailbox_internal.h - the memory that a group's members on one host share, for mailbox.c, hosts.c and chain.c. */
#ifndef SL_COLLECTIVES_MPI_MAILBOX_INTERNAL_H
#define SL_COLLECTIVES_MPI_MAILBOX_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>

#include "collectives/costs/spans.h"
#include "collectives/mpi/process/shared.h"
#include "collectives/mpi/wire.h"

SL_BEGIN_C

enum {
    SL_MPI_PIECE = SL_PIECE_BYTES, /* memory of a piece is allocated when a call first uses it */
    SL_MPI_PIECES = 2,             /* per slot; and as many for sums that come back (chain.c) */
    SL_MPI_APART = 17 * 64, /* bytes between pieces: with them, short calls do not evict each other from caches */
};

/* Raised by the owner, once a round. */
struct sl_mpi_words {
    alignas(SL_CACHE_LINE) _Atomic uint32_t written;
    _Atomic uint32_t folded, summed, read;
    _Atomic uint64_t call;  /* the call's word (sl_call_word), in which members must agree; likewise */
    _Atomic uint64_t group; /* a hash of the group's members */
};

struct sl_mpi_mailbox {
    struct sl_mpi_words words[SL_MAX_IN_FLIGHT];
    alignas(SL_CACHE_LINE) char piece[SL_MAX_IN_FLIGHT][2 * SL_MPI_PIECES][SL_MPI_PIECE + SL_MPI_APART];
};

static inline struct sl_mpi_mailbox *sl_mpi_box_of(const struct sl_mpi_call *c, int position) {
    return &c->communicator->mailboxes[sl_mpi_place_of(sl_group_member(c->call.group, position))];
}
static inline struct sl_mpi_words *sl_mpi_words_of(const struct sl_mpi_call *c, int position) {
    return &sl_mpi_box_of(c, position)->words[c->slot];
}
static inline struct sl_mpi_words *sl_mpi_own_words(const struct sl_mpi_call *c) {
    return sl_mpi_words_of(c, c->call.group->rank);
}

/* Whether WORD has been raised to TARGET. SC: see sl_mpi_want_room. */
static inline bool sl_mpi_reached(const _Atomic uint32_t *word, uint32_t target) {
    return (int32_t)(atomic_load(word) - target) >= 0;
}

/* Copies values that this member brings, or needs, between the program's memory and packed memory. */
void sl_mpi_pack_span(const struct sl_collective *call, struct sl_span span, char *tight);
void sl_mpi_unpack_span(const struct sl_collective *call, struct sl_span span, const char *tight);

/* Ends a call's rounds. Words that it has not raised are raised, so that none lags behind by as many rounds as a word
 * counts. */
static inline void sl_mpi_close_rounds(struct sl_mpi_call *c) {
    c->before += c->rounds;
    atomic_store_explicit(&sl_mpi_own_words(c)->folded, c->before, memory_order_release);
    atomic_store_explicit(&sl_mpi_own_words(c)->summed, c->before, memory_order_release);
}

/* Writes the call into this member's words: before it raises `written`. */
void sl_mpi_state_call(const struct sl_mpi_call *c);
/* Whether the members at POSITIONS, which have written, make the same call as this member; otherwise the run ends. */
bool sl_mpi_state_alike(struct sl_mpi_call *c, struct sl_positions positions);

SL_END_C
#endif
