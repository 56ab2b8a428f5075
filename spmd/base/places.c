/* places.c - hashes of arrays by the places of their elements. */
#include "spmd/base/places.h"

#include <immintrin.h>

#include "spmd/base/cpu_level.h"

/* Reads floats as words. */
typedef uint32_t __attribute__((may_alias)) word;

void sl_places_open(struct sl_places *places) {
    places->wide = sl_cpu_level() > 2;
    for (uint64_t p = 0; p < SL_PLACES; p++) places->low[p] = (uint32_t)(sl_places_mix(~p) >> 32) | 1;
}

/* ---- part of a block, on CPUs without and with AVX2: equal results ---- */

/* The sum for COUNT words of one block; LOW are their keys. */
static uint64_t sum_words(const uint32_t *restrict low, const word *restrict words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += (uint64_t)low[i] * words[i];
    return sum;
}

/* The sum for the floats a[i] + b[i]. */
static uint64_t sum_sums(const uint32_t *restrict low, const float *restrict a, const float *restrict b, size_t count) {
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

static uint64_t sum_halves(const uint32_t *restrict low, const uint16_t *restrict halves, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += (uint64_t)low[i] * ((uint32_t)halves[i] << 16);
    return sum;
}

#define WITH_AVX2 __attribute__((target("avx2")))
enum { WIDE = 16 }; /* words per round: two sums for even places, two for odd ones */

struct sums {
    __m256i of[4];
};

WITH_AVX2 static inline __m256i words_at(const void *at) { return _mm256_loadu_si256(at); }

/* Adds 8 words to two of the sums. A product uses the lower halves of 64-bit lanes; compilers would widen each word,
 * which takes half as long again. */
WITH_AVX2 static inline void add_words(__m256i *sum, __m256i low, __m256i words) {
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(low, 32), _mm256_srli_epi64(words, 32));
    sum[0] = _mm256_add_epi64(sum[0], _mm256_mul_epu32(low, words));
    sum[1] = _mm256_add_epi64(sum[1], odd);
}

WITH_AVX2 static inline uint64_t total_of(const struct sums *sums) {
    uint64_t lane[4];
    const __m256i even = _mm256_add_epi64(sums->of[0], sums->of[2]), odd = _mm256_add_epi64(sums->of[1], sums->of[3]);
    _mm256_storeu_si256((void *)lane, _mm256_add_epi64(even, odd));
    return lane[0] + lane[1] + lane[2] + lane[3];
}

WITH_AVX2 static uint64_t sum_words_wide(const uint32_t *low, const word *words, size_t count) {
    struct sums sums = {0};
    size_t i = 0;
    for (; i + WIDE <= count; i += WIDE) {
        add_words(sums.of, words_at(low + i), words_at(words + i));
        add_words(sums.of + 2, words_at(low + i + 8), words_at(words + i + 8));
    }
    return total_of(&sums) + sum_words(low + i, words + i, count - i);
}

WITH_AVX2 static inline __m256i sums_at(const float *a, const float *b) {
    return _mm256_castps_si256(_mm256_add_ps(_mm256_loadu_ps(a), _mm256_loadu_ps(b)));
}

WITH_AVX2 static uint64_t sum_sums_wide(const uint32_t *low, const float *a, const float *b, size_t count) {
    struct sums sums = {0};
    size_t i = 0;
    for (; i + WIDE <= count; i += WIDE) {
        add_words(sums.of, words_at(low + i), sums_at(a + i, b + i));
        add_words(sums.of + 2, words_at(low + i + 8), sums_at(a + i + 8, b + i + 8));
    }
    return total_of(&sums) + sum_sums(low + i, a + i, b + i, count - i);
}

WITH_AVX2 static inline __m256i halves_at(const uint16_t *at) {
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at)), 16);
}

WITH_AVX2 static uint64_t sum_halves_wide(const uint32_t *low, const uint16_t *halves, size_t count) {
    struct sums sums = {0};
    size_t i = 0;
    for (; i + WIDE <= count; i += WIDE) {
        add_words(sums.of, words_at(low + i), halves_at(halves + i));
        add_words(sums.of + 2, words_at(low + i + 8), halves_at(halves + i + 8));
    }
    return total_of(&sums) + sum_halves(low + i, halves + i, count - i);
}

/* The number of COUNT places from FIRST on that lie in FIRST's block. */
static size_t in_block(uint64_t first, size_t count) {
    const size_t left = SL_PLACES - (size_t)(first % SL_PLACES);
    return left < count ? left : count;
}

size_t sl_places_keys(const struct sl_places *places, uint64_t first, const uint32_t **low) {
    *low = places->low + first % SL_PLACES;
    return in_block(first, SL_PLACES);
}

uint64_t sl_places_hash(const struct sl_places *places, uint64_t first, const void *words, size_t count) {
    const word *next = words;
    uint64_t hash = 0;
    for (size_t part; count; count -= part, first += part, next += part) {
        part = in_block(first, count);
        const uint32_t *low = places->low + first % SL_PLACES;
        hash += sl_places_high(first) * (places->wide ? sum_words_wide : sum_words)(low, next, part);
    }
    return hash;
}

uint64_t sl_places_hash_sum(const struct sl_places *places, uint64_t first, const float *a, const float *b,
                            size_t count) {
    uint64_t hash = 0;
    for (size_t part; count; count -= part, first += part, a += part, b += part) {
        part = in_block(first, count);
        const uint32_t *low = places->low + first % SL_PLACES;
        hash += sl_places_high(first) * (places->wide ? sum_sums_wide : sum_sums)(low, a, b, part);
    }
    return hash;
}

uint64_t sl_places_hash_bf16(const struct sl_places *places, uint64_t first, const uint16_t *halves, size_t count) {
    uint64_t hash = 0;
    for (size_t part; count; count -= part, first += part, halves += part) {
        part = in_block(first, count);
        const uint32_t *low = places->low + first % SL_PLACES;
        hash += sl_places_high(first) * (places->wide ? sum_halves_wide : sum_halves)(low, halves, part);
    }
    return hash;
}
