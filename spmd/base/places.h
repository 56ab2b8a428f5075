/* places.h - hashes of arrays by the places of their elements: the hashes of an array's parts add up to the array's
 * hash, however it is divided. So shards on several coordinates can be compared with the whole array on one.
 *
 * The hash of an array of 32-bit words is the sum, modulo 2^64, of each word times the key of its place: place p has
 * the key low[p % 256] * high(p / 256). Both are odd numbers without a pattern (splitmix64, Steele, Lea & Flood, OOPSLA
 * 2014). A change of a single word always changes the hash, and so does an exchange of two different words of the same
 * 256. Of other changes at most one in 2^32 goes unnoticed. The hash finds faults, not malice. */
#ifndef SL_SPMD_BASE_PLACES_H
#define SL_SPMD_BASE_PLACES_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_PLACES = 256 };

struct sl_places {
    uint32_t low[SL_PLACES];
    bool wide; /* the CPU has vectors for a faster sum */
};

/* Computes the keys, which are always the same. */
void sl_places_open(struct sl_places *places);

static inline uint64_t sl_places_mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}

/* Writes to *LOW the keys of places from FIRST on, and returns the number of places, at least one, whose keys are
 * stored there. The hash of words at these places is the sum of key times word, times sl_places_high(first). */
size_t sl_places_keys(const struct sl_places *places, uint64_t first, const uint32_t **low);
static inline uint64_t sl_places_high(uint64_t first) { return sl_places_mix(first / SL_PLACES) | 1; }

/* The hash of COUNT words (floats or 32-bit integers) at places from FIRST on. */
uint64_t sl_places_hash(const struct sl_places *places, uint64_t first, const void *words, size_t count);
/* The hash of the float sums of A [count] and B [count]; the sums are not stored. */
uint64_t sl_places_hash_sum(const struct sl_places *places, uint64_t first, const float *a, const float *b,
                            size_t count);
/* The hash of COUNT bf16 values as floats: equal to the hash of the rounded floats. */
uint64_t sl_places_hash_bf16(const struct sl_places *places, uint64_t first, const uint16_t *halves, size_t count);

SL_END_C
#endif
