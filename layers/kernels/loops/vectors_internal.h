/* vectors_internal.h - the compilers' vectors of floats, as wide as the registers of a file's CPU level.
 *
 * C has no other way to keep a tile of sums in registers. */
#ifndef SL_LAYERS_KERNELS_LOOPS_VECTORS_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_VECTORS_INTERNAL_H

#include "spmd/base/numbers/dtype.h"

/* LANES: floats in a vector. TILE: rows of a tile, which share a load of a vector of columns; its sums fill the
 * registers. WIDE: vectors of columns of such a tile. */
#if defined(SL_DEVICE_CUDA)
enum { LANES = 1, TILE = 4, WIDE = 2 };
#define SL_LANE_NUMBERS 0
#elif defined(__AVX512F__)
enum { LANES = 16, TILE = 8, WIDE = 2 };
#define SL_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif defined(__AVX__)
enum { LANES = 8, TILE = 4, WIDE = 3 };
#define SL_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#else
enum { LANES = 4, TILE = 4, WIDE = 2 };
#define SL_LANE_NUMBERS 0, 1, 2, 3
#endif

/* Unrolls the following loop, so that its arrays become registers. */
#if defined(__clang__)
#define SL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

static inline vector load(const float *from) { return *(const vector *)(const void *)from; }
static inline void store(float *to, vector x) { *(vector *)(void *)to = x; }
/* Loads bf16 as floats. */
static inline vector load_bf16(const uint16_t *from) {
    return (vector)(__builtin_convertvector(*(const halves *)(const void *)from, words) << 16);
}
/* Loads elements [I, I + LANES) of floats or bf16. Callers pass a constant DTYPE. */
SL_INLINE vector load_as(const enum sl_dtype dtype, const void *from, size_t i) {
    return dtype == SL_BF16 ? load_bf16((const uint16_t *)from + i) : load((const float *)from + i);
}
static inline four load_four(const float *from) { return *(const four *)(const void *)from; }
static inline void store_four(float *to, four x) { *(four *)(void *)to = x; }
static inline vector spread(float x) { return x - (vector){0}; }
/* Returns X in lanes FIRST to LAST, OTHER in the other lanes. */
static inline vector in_lanes(int32_t first, int32_t last, vector x, vector other) {
    const integers lanes = {SL_LANE_NUMBERS};
    const words inside = (words)((lanes >= first) & (lanes <= last));
    return (vector)((inside & (words)x) | (~inside & (words)other));
}

/* Interleave the first halves of two rows, or their second halves: a0 b0 a1 b1, or a2 b2 a3 b3. */
static inline four mix_low(four a, four b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
static inline four mix_high(four a, four b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

#endif
