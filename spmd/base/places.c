/* places.c - hashes of arrays by the places of their elements. */
#include "spmd/base/places.h"

#include "spmd/base/cpu_level.h"

/* Floats are read as words. */
typedef uint32_t __attribute__((may_alias)) word;

static uint64_t mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}

static uint64_t high(uint64_t block) { return mix(block) | 1; }

void sl_places_open(struct sl_places *places) {
    places->wide = sl_cpu_level() > 2;
    for (uint64_t p = 0; p < SL_PLACES; p++) places->low[p] = (uint32_t)(mix(~p) >> 32) | 1;
}

/* ---- a part of a block, for CPUs without and with AVX2: the same numbers ---- */

#define EVERYWHERE static inline __attribute__((always_inline)) uint64_t
#define WITH_AVX2 static __attribute__((target("avx2"))) uint64_t

/* Words from the place of LOW on, which stay in one block. */
EVERYWHERE sum_words(const uint32_t *restrict low, const word *restrict words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += (uint64_t)low[i] * words[i];
    return sum;
}

/* Of the floats that are sums of two. */
EVERYWHERE sum_sums(const uint32_t *restrict low, const float *restrict a, const float *restrict b, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        const union {
            float number;
            uint32_t word;
        } both = {a[i] + b[i]};
        sum += (uint64_t)low[i] * both.word;
    }
    return sum;
}

EVERYWHERE sum_halves(const uint32_t *restrict low, const uint16_t *restrict halves, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += (uint64_t)low[i] * ((uint32_t)halves[i] << 16);
    return sum;
}

WITH_AVX2 sum_words_wide(const uint32_t *low, const word *words, size_t count) { return sum_words(low, words, count); }

WITH_AVX2 sum_sums_wide(const uint32_t *low, const float *a, const float *b, size_t count) {
    return sum_sums(low, a, b, count);
}

WITH_AVX2 sum_halves_wide(const uint32_t *low, const uint16_t *halves, size_t count) {
    return sum_halves(low, halves, count);
}

/* How many of COUNT places from FIRST on lie in FIRST's block. */
static size_t in_block(uint64_t first, size_t count) {
    const size_t left = SL_PLACES - (size_t)(first % SL_PLACES);
    return left < count ? left : count;
}

uint64_t sl_places_hash(const struct sl_places *places, uint64_t first, const void *words, size_t count) {
    const word *next = words;
    uint64_t hash = 0;
    for (size_t part; count; count -= part, first += part, next += part) {
        part = in_block(first, count);
        const uint32_t *low = places->low + first % SL_PLACES;
        hash += high(first / SL_PLACES) * (places->wide ? sum_words_wide : sum_words)(low, next, part);
    }
    return hash;
}

uint64_t sl_places_hash_sum(const struct sl_places *places, uint64_t first, const float *a, const float *b,
                            size_t count) {
    uint64_t hash = 0;
    for (size_t part; count; count -= part, first += part, a += part, b += part) {
        part = in_block(first, count);
        const uint32_t *low = places->low + first % SL_PLACES;
        hash += high(first / SL_PLACES) * (places->wide ? sum_sums_wide : sum_sums)(low, a, b, part);
    }
    return hash;
}

uint64_t sl_places_hash_bf16(const struct sl_places *places, uint64_t first, const uint16_t *halves, size_t count) {
    uint64_t hash = 0;
    for (size_t part; count; count -= part, first += part, halves += part) {
        part = in_block(first, count);
        const uint32_t *low = places->low + first % SL_PLACES;
        hash += high(first / SL_PLACES) * (places->wide ? sum_halves_wide : sum_halves)(low, halves, part);
    }
    return hash;
}
