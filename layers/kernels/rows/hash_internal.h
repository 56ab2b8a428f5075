/* hash_internal.h - sums of keys times words, for hashes by places (spmd/base/places.h) that a kernel makes of what it
 * has at hand: of a block at a time, which is small enough that the processor computes the next one meanwhile. */
#ifndef SL_LAYERS_KERNELS_ROWS_HASH_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_HASH_INTERNAL_H

#include "spmd/base/dtype.h"

#include <immintrin.h>
#include <string.h>

/* A product is of the lower halves of 64 bits; of the upper ones after a shift. Compilers would widen each word. */
#if defined(__AVX512F__)
typedef __m512i pairs;
static inline pairs pairs_at(const void *at) { return _mm512_loadu_si512(at); }
static inline pairs pairs_of(const float *a, const float *b) {
    return _mm512_castps_si512(_mm512_add_ps(_mm512_loadu_ps(a), _mm512_loadu_ps(b)));
}
static inline pairs upper_halves(pairs x) { return _mm512_srli_epi64(x, 32); }
static inline pairs add_product(pairs sum, pairs a, pairs b) { return _mm512_add_epi64(sum, _mm512_mul_epu32(a, b)); }
#elif defined(__AVX2__)
typedef __m256i pairs;
static inline pairs pairs_at(const void *at) { return _mm256_loadu_si256(at); }
static inline pairs pairs_of(const float *a, const float *b) {
    return _mm256_castps_si256(_mm256_add_ps(_mm256_loadu_ps(a), _mm256_loadu_ps(b)));
}
static inline pairs upper_halves(pairs x) { return _mm256_srli_epi64(x, 32); }
static inline pairs add_product(pairs sum, pairs a, pairs b) { return _mm256_add_epi64(sum, _mm256_mul_epu32(a, b)); }
#else
typedef __m128i pairs;
static inline pairs pairs_at(const void *at) { return _mm_loadu_si128(at); }
static inline pairs pairs_of(const float *a, const float *b) {
    return _mm_castps_si128(_mm_add_ps(_mm_loadu_ps(a), _mm_loadu_ps(b)));
}
static inline pairs upper_halves(pairs x) { return _mm_srli_epi64(x, 32); }
static inline pairs add_product(pairs sum, pairs a, pairs b) { return _mm_add_epi64(sum, _mm_mul_epu32(a, b)); }
#endif

enum { PAIRED = sizeof(pairs) / 4 }; /* words in a vector */

/* Of gradients and of values, each of even and of odd words; and of those that fill no vector. */
struct pass_sums {
    pairs gradients[2], values[2];
    uint64_t gradient, value;
};

SL_INLINE uint32_t word_of(float number) {
    uint32_t word;
    memcpy(&word, &number, sizeof word);
    return word;
}

static inline void add_words(pairs *sum, pairs keys, pairs words) {
    sum[0] = add_product(sum[0], keys, words);
    sum[1] = add_product(sum[1], upper_halves(keys), upper_halves(words));
}

/* Adds COUNT words of a gradient (GRADIENT + ADDEND, if ADDS) and of values. */
SL_INLINE void hash_few(struct pass_sums *sums, size_t count, const uint32_t *keys, const float *gradient,
                        const float *addend, const bool adds, const float *value) {
    size_t i = 0;
    for (; i + PAIRED <= count; i += PAIRED) {
        const pairs key = pairs_at(keys + i);
        add_words(sums->gradients, key, adds ? pairs_of(gradient + i, addend + i) : pairs_at(gradient + i));
        add_words(sums->values, key, pairs_at(value + i));
    }
    for (; i < count; i++) {
        sums->gradient += (uint64_t)keys[i] * word_of(adds ? gradient[i] + addend[i] : gradient[i]);
        sums->value += (uint64_t)keys[i] * word_of(value[i]);
    }
}

static inline uint64_t total_of_pairs(const pairs sums[2]) {
    uint64_t lane[2 * sizeof(pairs) / 8], total = 0;
    memcpy(lane, sums, sizeof lane);
    for (size_t l = 0; l < sizeof lane / sizeof *lane; l++) total += lane[l];
    return total;
}

#endif
