/* hash_internal.h - sums of keys times words, for hashes by places (spmd/base/places.h) inside a kernel: of one small
 * block at a time, so that the processor computes the next block meanwhile. */
#ifndef SL_LAYERS_KERNELS_LOOPS_HASH_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_HASH_INTERNAL_H

#include "layers/kernels/loops/vectors_internal.h"

#include <string.h>

/* Words in pairs: a product is of the lower halves of 64 bits, for which CPUs have an instruction. From a plain loop,
 * compilers would widen each word. */
typedef uint64_t pairs __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
static inline pairs pairs_at(const void *at) { return *(const pairs *)at; }
static inline pairs pairs_of(const float *a, const float *b) { return (pairs)(load(a) + load(b)); }

/* Sums of gradients and of values, each for even and odd words; and of the words behind the last full vector. */
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
    sum[0] += (keys & UINT32_MAX) * (words & UINT32_MAX);
    sum[1] += (keys >> 32) * (words >> 32);
}

/* Adds COUNT words of a gradient (GRADIENT + ADDEND, if ADDS) and of values. */
SL_INLINE void hash_few(struct pass_sums *sums, size_t count, const uint32_t *keys, const float *gradient,
                        const float *addend, const bool adds, const float *value) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
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
