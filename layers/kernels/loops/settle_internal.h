/* settle_internal.h - rounds complete rows to bf16. */
#ifndef SL_LAYERS_KERNELS_LOOPS_SETTLE_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_SETTLE_INTERNAL_H

#include "spmd/base/numbers/bf16.h"
#include "spmd/device/offload.h"

/* Returns element I of X, which is bf16 if HALF (a constant), else floats. */
SL_INLINE float element(const void *x, const bool half, size_t i) {
    return half ? sl_float_of_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}
/* Returns element I of a gradient, rounded to bf16 if HALF. */
SL_INLINE float gradient_of(const float *dy, const bool half, size_t i) { return half ? sl_bf16_part(dy[i]) : dy[i]; }
/* Returns element I of a gradient that is bf16 if HALF_DY; else floats, rounded to bf16 if HALF. */
SL_INLINE float any_gradient(const void *dy, const bool half_dy, const bool half, size_t i) {
    return half_dy ? element(dy, true, i) : gradient_of(dy, half, i);
}

/* Rounds elements FIRST to END of X to bf16; STORED, a bf16 copy, may be NULL. Each case has its own loop: in a shared
 * loop compilers store under a mask, which is slow for narrowing stores. EACH() is the loops' pragma. */
#define SL_SETTLE(EACH, first, end, x, stored)                                                                         \
    do {                                                                                                               \
        if (stored) {                                                                                                  \
            EACH() for (size_t i = first; i < (end); i++) sl_settle(x, stored, i);                                     \
        } else {                                                                                                       \
            EACH() for (size_t i = first; i < (end); i++) sl_settle(x, NULL, i);                                       \
        }                                                                                                              \
    } while (0)

/* Inside SL_ROWS: a device's threads share the elements. */
SL_INLINE void settle_elements(size_t first, size_t end, float *x, uint16_t *stored) {
    SL_SETTLE(SL_LANES, first, end, x, stored);
}

/* Inside SL_ROWS: y [n] = x [n] as bf16; x does not change. */
SL_INLINE void round_elements(size_t n, const float *x, uint16_t *y) {
    SL_LANES()
    for (size_t i = 0; i < n; i++) y[i] = sl_bf16_of_float(x[i]);
}

/* Inside SL_BLOCKS or SL_THREADS: one thread rounds all elements. */
SL_INLINE void settle_block(size_t first, size_t end, float *x, uint16_t *stored) {
    SL_SETTLE(SL_IN_BLOCK, first, end, x, stored);
}

/* settle_block without changes to X. */
SL_INLINE void store_block(size_t first, size_t end, const float *x, uint16_t *stored) {
    SL_IN_BLOCK()
    for (size_t i = first; i < end; i++) stored[i] = sl_bf16_of_float(x[i]);
}

#endif
