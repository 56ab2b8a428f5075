/* turns.h - whose turn it is, for walks over a table whose ranks wait for each other.
 *
 * A walk that asks every rank in every round takes as many questions as ranks times rounds, and most ranks wait. Here a
 * rank has a turn only after something has happened that it may have waited for. The order is that of the rounds: who
 * is woken comes later in the same round if the rank is higher than the one whose turn it is, otherwise in the next. */
#ifndef SL_SPMD_SCHEDULE_TURNS_H
#define SL_SPMD_SCHEDULE_TURNS_H

#include <string.h>

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* As many words as one word has bits: it says which of them are not zero. */
enum { SL_TURNS_BITS = 64, SL_TURNS_WORDS = SL_MAX_STAGES / SL_TURNS_BITS };

/* A set of ranks. */
struct sl_turns {
    int at;        /* whose turn it is; -1 before the first */
    uint64_t some; /* a bit for each word that is not zero */
    uint64_t word[SL_TURNS_WORDS];
};

static inline void sl_turns_wake(struct sl_turns *turns, int rank) {
    turns->word[rank / SL_TURNS_BITS] |= UINT64_C(1) << rank % SL_TURNS_BITS;
    turns->some |= UINT64_C(1) << rank / SL_TURNS_BITS;
}

/* Every one of RANKS has a turn in the first round. */
static inline void sl_turns_begin(struct sl_turns *turns, int ranks) {
    memset(turns, 0, sizeof *turns);
    turns->at = -1;
    for (int r = 0; r < ranks; r++) sl_turns_wake(turns, r);
}

/* The first rank of the set from LOWEST on; -1: there is none. */
static inline int sl_turns_from(const struct sl_turns *turns, int lowest) {
    const int first = lowest / SL_TURNS_BITS;
    if (lowest >= SL_MAX_STAGES) return -1;
    const uint64_t here = turns->word[first] & UINT64_MAX << lowest % SL_TURNS_BITS;
    if (here) return first * SL_TURNS_BITS + __builtin_ctzll(here);
    const uint64_t later = turns->some & ~(UINT64_MAX >> (SL_TURNS_BITS - 1 - first));
    if (!later) return -1;
    const int word = __builtin_ctzll(later);
    return word * SL_TURNS_BITS + __builtin_ctzll(turns->word[word]);
}

/* The rank that has the next turn; -1: nobody has. */
static inline int sl_turns_next(struct sl_turns *turns) {
    int rank = sl_turns_from(turns, turns->at + 1);
    if (rank < 0) rank = sl_turns_from(turns, 0);
    if (rank < 0) return -1;
    uint64_t *word = &turns->word[rank / SL_TURNS_BITS];
    *word &= ~(UINT64_C(1) << rank % SL_TURNS_BITS);
    if (!*word) turns->some &= ~(UINT64_C(1) << rank / SL_TURNS_BITS);
    return turns->at = rank;
}

SL_END_C
#endif
