/* product_internal.h - what a matrix product is called with.
 *
 * What is asked for ahead (__builtin_prefetch) may lie past an array's end: nothing is read there, and an address that
 * is none is no error. */
#ifndef SL_LAYERS_KERNELS_ROWS_PRODUCT_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_PRODUCT_INTERNAL_H

#include "spmd/base/base.h"

/* What B lies as. Sources that are built with SL_BF16_WEIGHTS widen it as they read it. */
#if defined(SL_BF16_WEIGHTS)
typedef uint16_t weight;
#else
typedef float weight;
#endif

struct product {
    size_t m, n, k;
    const float *a;
    const weight *b;
    const float *bias; /* may be NULL */
    bool accumulate;
    float *c;
};

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

#endif
