/* turns.h - the order in which a walk visits waiting ranks.
 *
 * A walk that visits every rank in every round needs ranks times rounds visits, and most ranks only wait. Here a rank
 * gets a turn only after an event it may wait for. The order is by rounds: a woken rank above the current one has its
 * turn in the same round, otherwise in the next one. */
#ifndef SL_SPMD_SCHEDULE_TURNS_H
#define SL_SPMD_SCHEDULE_TURNS_H

#include <string.h>

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* A set has a bit per rank, and a second level with a bit per word of the first, set if the word is not zero. */
enum {
    SL_TURNS_BITS = 64,
    SL_TURNS_WORDS = SL_MAX_STAGES / SL_TURNS_BITS,
    SL_TURNS_SOME = SL_TURNS_WORDS / SL_TURNS_BITS
};

/* A set of ranks. */
struct sl_turns {
    int at;                       /* the rank whose turn it is; -1 before the first */
    int words;                    /* words for the ranks */
    uint64_t some[SL_TURNS_SOME]; /* a bit per non-zero word */
    uint64_t word[SL_TURNS_WORDS];
};

static inline void sl_turns_wake(struct sl_turns *turns, int rank) {
    const int word = rank / SL_TURNS_BITS;
    turns->word[word] |= UINT64_C(1) << rank % SL_TURNS_BITS;
    turns->some[word / SL_TURNS_BITS] |= UINT64_C(1) << word % SL_TURNS_BITS;
}

/* Gives each of RANKS a turn in the first round. */
static inline void sl_turns_begin(struct sl_turns *turns, int ranks) {
    turns->at = -1;
    turns->words = (ranks + SL_TURNS_BITS - 1) / SL_TURNS_BITS;
    memset(turns->some, 0, sizeof turns->some);
    memset(turns->word, 0, (size_t)turns->words * sizeof *turns->word);
    for (int r = 0; r < ranks; r++) sl_turns_wake(turns, r);
}

/* The first set bit of the COUNT words at WORD from bit LOWEST on; -1: there is none. */
static inline int sl_turns_bit(const uint64_t *word, int count, int lowest) {
    int at = lowest / SL_TURNS_BITS;
    if (at >= count) return -1;
    uint64_t bits = word[at] & UINT64_MAX << lowest % SL_TURNS_BITS;
    while (!bits && ++at < count) bits = word[at];
    return bits ? at * SL_TURNS_BITS + __builtin_ctzll(bits) : -1;
}

/* The first rank of the set from LOWEST on; -1: there is none. */
static inline int sl_turns_from(const struct sl_turns *turns, int lowest) {
    const int first = lowest / SL_TURNS_BITS, words = (turns->words + SL_TURNS_BITS - 1) / SL_TURNS_BITS;
    if (first >= turns->words) return -1;
    const uint64_t here = turns->word[first] & UINT64_MAX << lowest % SL_TURNS_BITS;
    if (here) return first * SL_TURNS_BITS + __builtin_ctzll(here);
    const int later = sl_turns_bit(turns->some, words, first + 1);
    return later < 0 ? -1 : later * SL_TURNS_BITS + __builtin_ctzll(turns->word[later]);
}

/* Removes and returns the rank with the next turn; -1: the set is empty. */
static inline int sl_turns_next(struct sl_turns *turns) {
    int rank = sl_turns_from(turns, turns->at + 1);
    if (rank < 0) rank = sl_turns_from(turns, 0);
    if (rank < 0) return -1;
    const int word = rank / SL_TURNS_BITS;
    turns->word[word] &= ~(UINT64_C(1) << rank % SL_TURNS_BITS);
    if (!turns->word[word]) turns->some[word / SL_TURNS_BITS] &= ~(UINT64_C(1) << word % SL_TURNS_BITS);
    return turns->at = rank;
}

SL_END_C
#endif
