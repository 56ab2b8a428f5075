/* lanes_internal.h - sums of the lanes of LANES vectors, transposes, and pairs of bf16, in registers without memory. */
#ifndef SL_LAYERS_KERNELS_LOOPS_LANES_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_LANES_INTERNAL_H

#include "layers/kernels/loops/vectors_internal.h"

#include <stddef.h>
#include <string.h>

/* Shuffle indices for quarter Q of four lanes: elements 0 to 3 are of the first vector, 4 to 7 of the second. */
#define SL_ELEMENT(i, q) (((i) & 3) + 4 * (q) + ((i) > 3 ? LANES : 0))
#define SL_QUARTER(q, i, j, k, l) SL_ELEMENT(i, q), SL_ELEMENT(j, q), SL_ELEMENT(k, q), SL_ELEMENT(l, q)

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

/* Adds the quarters (four neighbouring lanes) of each vector, one after another. */
#if defined(__AVX512F__)
#define SL_QUARTERS(...)                                                                                               \
    SL_QUARTER(0, __VA_ARGS__), SL_QUARTER(1, __VA_ARGS__), SL_QUARTER(2, __VA_ARGS__), SL_QUARTER(3, __VA_ARGS__)

static inline vector fold(const vector *x) {
    const vector a = x[0], b = x[4], c = x[8], d = x[12];
    const vector ab01 = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const vector cd01 = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const vector ab23 = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const vector cd23 = __builtin_shufflevector(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    vector sum = __builtin_shufflevector(ab01, cd01, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    sum += __builtin_shufflevector(ab01, cd01, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    sum += __builtin_shufflevector(ab23, cd23, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    return sum + __builtin_shufflevector(ab23, cd23, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/* Loads a vector of fours that are STEP apart. */
static inline vector load_fours(const float *x, size_t step) {
    const eight ab = __builtin_shufflevector(load_four(x), load_four(x + step), 0, 1, 2, 3, 4, 5, 6, 7);
    const eight cd = __builtin_shufflevector(load_four(x + 2 * step), load_four(x + 3 * step), 0, 1, 2, 3, 4, 5, 6, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

#define SL_LOW_PAIRS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SL_HIGH_PAIRS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
#define SL_QUARTERS(...) SL_QUARTER(0, __VA_ARGS__), SL_QUARTER(1, __VA_ARGS__)

static inline vector fold(const vector *x) {
    return __builtin_shufflevector(x[0], x[4], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(x[0], x[4], 4, 5, 6, 7, 12, 13, 14, 15);
}

static inline vector load_fours(const float *x, size_t step) {
    return __builtin_shufflevector(load_four(x), load_four(x + step), 0, 1, 2, 3, 4, 5, 6, 7);
}

#define SL_LOW_PAIRS 0, 8, 1, 9, 2, 10, 3, 11
#define SL_HIGH_PAIRS 4, 12, 5, 13, 6, 14, 7, 15
#else
#define SL_QUARTERS(...) SL_QUARTER(0, __VA_ARGS__)

static inline vector fold(const vector *x) { return x[0]; }

static inline vector load_fours(const float *x, size_t step) {
    (void)step;
    return load(x);
}

#define SL_LOW_PAIRS 0, 4, 1, 5
#define SL_HIGH_PAIRS 2, 6, 3, 7
#endif

/* Returns the vector whose lane i is the sum of the lanes of x[i]. */
static inline __attribute__((always_inline)) vector sum_lanes(const vector x[LANES]) {
    const vector a = fold(x), b = fold(x + 1), c = fold(x + 2), d = fold(x + 3);
    const vector ab = __builtin_shufflevector(a, b, SL_QUARTERS(0, 4, 1, 5)) +
                      __builtin_shufflevector(a, b, SL_QUARTERS(2, 6, 3, 7)); /* a02 b02 a13 b13 */
    const vector cd =
        __builtin_shufflevector(c, d, SL_QUARTERS(0, 4, 1, 5)) + __builtin_shufflevector(c, d, SL_QUARTERS(2, 6, 3, 7));
    return __builtin_shufflevector(ab, cd, SL_QUARTERS(0, 1, 4, 5)) +
           __builtin_shufflevector(ab, cd, SL_QUARTERS(2, 3, 6, 7));
}

/* to[0 to 3] = the first four columns of LANES rows of X, ROW apart. */
static inline __attribute__((always_inline)) void load_columns(const float *x, size_t row, vector to[4]) {
    const vector a = load_fours(x, 4 * row), b = load_fours(x + row, 4 * row);
    const vector c = load_fours(x + 2 * row, 4 * row), d = load_fours(x + 3 * row, 4 * row);
    const vector ac01 = __builtin_shufflevector(a, c, SL_QUARTERS(0, 4, 1, 5));
    const vector ac23 = __builtin_shufflevector(a, c, SL_QUARTERS(2, 6, 3, 7));
    const vector bd01 = __builtin_shufflevector(b, d, SL_QUARTERS(0, 4, 1, 5));
    const vector bd23 = __builtin_shufflevector(b, d, SL_QUARTERS(2, 6, 3, 7));
    to[0] = __builtin_shufflevector(ac01, bd01, SL_QUARTERS(0, 4, 1, 5));
    to[1] = __builtin_shufflevector(ac01, bd01, SL_QUARTERS(2, 6, 3, 7));
    to[2] = __builtin_shufflevector(ac23, bd23, SL_QUARTERS(0, 4, 1, 5));
    to[3] = __builtin_shufflevector(ac23, bd23, SL_QUARTERS(2, 6, 3, 7));
}

/* Loads two vectors of bf16 as floats: first the even elements, then the odd ones. */
static inline void load_pairs(const uint16_t *from, vector to[2]) {
    words pairs;
    memcpy(&pairs, from, sizeof pairs);
    to[0] = (vector)(pairs << 16);
    to[1] = (vector)(pairs & 0xffff0000u);
}
/* Restores memory order after load_pairs. */
static inline void order_pairs(vector x[2]) {
    const vector even = x[0], odd = x[1];
    x[0] = __builtin_shufflevector(even, odd, SL_LOW_PAIRS);
    x[1] = __builtin_shufflevector(even, odd, SL_HIGH_PAIRS);
}

#endif
