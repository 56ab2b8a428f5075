/* places.h - hashes of arrays by the places of their elements: those of an array's parts add up to that of the array,
 * however it is divided. So the shards that several coordinates hold can be compared with the whole that one holds.
 *
 * The hash of an array of 32-bit words is the sum, modulo 2^64, of each word times the key of its place: place p has
 * the key low[p % 256] * high(p / 256). Both are odd numbers without a pattern (splitmix64, Steele, Lea & Flood, OOPSLA
 * 2014). A single word that changes always changes the hash, and so do two words of the same 256 that change places.
 * Of other changes one in 2^32 or fewer goes unnoticed. It finds faults, not malice. */
#ifndef SL_SPMD_BASE_PLACES_H
#define SL_SPMD_BASE_PLACES_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_PLACES = 256 };

struct sl_places {
    uint32_t low[SL_PLACES];
    bool wide; /* the CPU has vectors that make it faster */
};

/* The keys, which are always the same. */
void sl_places_open(struct sl_places *places);

static inline uint64_t sl_places_mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}

/* How many places from FIRST on, at least one, have their keys together: LOW. The part of the hash that such words make
 * is the sum of each one's key times the word, times what sl_places_high gives. */
size_t sl_places_keys(const struct sl_places *places, uint64_t first, const uint32_t **low);
static inline uint64_t sl_places_high(uint64_t first) { return sl_places_mix(first / SL_PLACES) | 1; }

/* The part of the hash that COUNT words from place FIRST on make: floats or integers of 32 bits. */
uint64_t sl_places_hash(const struct sl_places *places, uint64_t first, const void *words, size_t count);
/* The same of the sums, as floats, of A [count] and B [count], which are stored nowhere. */
uint64_t sl_places_hash_sum(const struct sl_places *places, uint64_t first, const float *a, const float *b,
                            size_t count);
/* The same of bf16, each as the float that it is: what was rounded has the hash of the floats that were. */
uint64_t sl_places_hash_bf16(const struct sl_places *places, uint64_t first, const uint16_t *halves, size_t count);

SL_END_C
#endif
