/* set.h - sets of small numbers from 0 on, as the bits of words. */
#ifndef SL_SPMD_SET_H
#define SL_SPMD_SET_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_SET_WORD = 64 }; /* numbers a word */

/* Words of a set of the numbers below END: at least one. */
static inline size_t sl_set_words(int end) { return (size_t)end / SL_SET_WORD + 1; }

static inline bool sl_set_has(const uint64_t *set, int number) {
    return set[number / SL_SET_WORD] >> number % SL_SET_WORD & 1;
}

/* Adds NUMBER; returns false if it was already in the set. */
static inline bool sl_set_adds(uint64_t *set, int number) {
    if (sl_set_has(set, number)) return false;
    set[number / SL_SET_WORD] |= UINT64_C(1) << number % SL_SET_WORD;
    return true;
}

SL_END_C
#endif
