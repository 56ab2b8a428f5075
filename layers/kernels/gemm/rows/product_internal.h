/* product_internal.h - arguments of a matrix product.
 *
 * Prefetches (__builtin_prefetch) may go past an array's end: they read nothing there, and an invalid address is no
 * error. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_PRODUCT_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_PRODUCT_INTERNAL_H

#include "layers/kernels/loops/lanes_internal.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/base/numbers/bf16.h"

/* Type of B, and of A in a weight's gradient. Sources that are built with SL_BF16_WEIGHTS widen it while they read it.
 */
#if defined(SL_BF16_WEIGHTS)
typedef uint16_t weight;
static inline vector load_weights(const weight *from) { return load_bf16(from); }
static inline float value_of(weight x) { return sl_float_of_bf16(x); }
static inline __attribute__((always_inline)) void copy_values(const weight *from, size_t n, float *to) {
    for (size_t i = 0; i < n; i++) to[i] = value_of(from[i]);
}
#else
typedef float weight;
static inline vector load_weights(const weight *from) { return load(from); }
static inline float value_of(weight x) { return x; }
static inline __attribute__((always_inline)) void copy_values(const weight *from, size_t n, float *to) {
    memcpy(to, from, n * sizeof *to);
}
#endif

struct product {
    size_t m, n, k;
    const float *a;
    const weight *b;
    const float *bias; /* may be NULL */
    bool accumulate;
    float *c;
};

#endif
