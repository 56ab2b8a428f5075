/* lane_sums_internal.h - sums of the lanes of as many vectors as a vector has lanes, without a way through memory. */
#ifndef SL_LAYERS_KERNELS_ROWS_LANE_SUMS_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_LANE_SUMS_INTERNAL_H

#include "layers/kernels/rows/vectors_internal.h"

/* What a shuffle of two vectors takes for quarter Q of four lanes: elements 0 to 3 are the first's, 4 to 7 the
 * second's. */
#define SL_ELEMENT(i, q) (((i) & 3) + 4 * (q) + ((i) > 3 ? LANES : 0))
#define SL_QUARTER(q, i, j, k, l) SL_ELEMENT(i, q), SL_ELEMENT(j, q), SL_ELEMENT(k, q), SL_ELEMENT(l, q)

/* Four neighbouring lanes of each vector: its quarters, added one after another. */
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
#elif defined(__AVX__)
#define SL_QUARTERS(...) SL_QUARTER(0, __VA_ARGS__), SL_QUARTER(1, __VA_ARGS__)

static inline vector fold(const vector *x) {
    return __builtin_shufflevector(x[0], x[4], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(x[0], x[4], 4, 5, 6, 7, 12, 13, 14, 15);
}
#else
#define SL_QUARTERS(...) SL_QUARTER(0, __VA_ARGS__)

static inline vector fold(const vector *x) { return x[0]; }
#endif

/* Lane i is the sum of the lanes of x[i]. */
static inline __attribute__((always_inline)) vector sum_lanes(const vector x[LANES]) {
    const vector a = fold(x), b = fold(x + 1), c = fold(x + 2), d = fold(x + 3);
    const vector ab = __builtin_shufflevector(a, b, SL_QUARTERS(0, 4, 1, 5)) +
                      __builtin_shufflevector(a, b, SL_QUARTERS(2, 6, 3, 7)); /* a02 b02 a13 b13 */
    const vector cd =
        __builtin_shufflevector(c, d, SL_QUARTERS(0, 4, 1, 5)) + __builtin_shufflevector(c, d, SL_QUARTERS(2, 6, 3, 7));
    return __builtin_shufflevector(ab, cd, SL_QUARTERS(0, 1, 4, 5)) +
           __builtin_shufflevector(ab, cd, SL_QUARTERS(2, 3, 6, 7));
}

#endif
