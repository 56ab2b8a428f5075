/* settle_internal.h - rows that kernels round when they are complete. */
#ifndef SL_LAYERS_KERNELS_ROWS_SETTLE_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_SETTLE_INTERNAL_H

#include "spmd/base/bf16.h"
#include "spmd/device/offload.h"

/* With HALF as a constant: element I of X, which is bf16 or floats. */
SL_INLINE float element(const void *x, const bool half, size_t i) {
    return half ? sl_float_of_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}
/* The same of a gradient, of which bf16 is kept where the rest is bf16. */
SL_INLINE float gradient_of(const float *dy, const bool half, size_t i) { return half ? sl_bf16_part(dy[i]) : dy[i]; }
/* The same of a gradient that is bf16 if HALF_DY, else floats. */
SL_INLINE float any_gradient(const void *dy, const bool half_dy, const bool half, size_t i) {
    return half_dy ? element(dy, true, i) : gradient_of(dy, half, i);
}

/* Elements FIRST to END of X; STORED may be NULL. There is a loop for either: of one loop a compiler makes stores under
 * a mask, which are slow where numbers become narrower. EACH() stands before the loops. */
#define SL_SETTLE(EACH, first, end, x, stored)                                                                         \
    do {                                                                                                               \
        if (stored) {                                                                                                  \
            EACH() for (size_t i = first; i < (end); i++) sl_settle(x, stored, i);                                     \
        } else {                                                                                                       \
            EACH() for (size_t i = first; i < (end); i++) sl_settle(x, NULL, i);                                       \
        }                                                                                                              \
    } while (0)

/* Inside SL_ROWS: a device's threads share them. */
SL_INLINE void settle_elements(size_t first, size_t end, float *x, uint16_t *stored) {
    SL_SETTLE(SL_LANES, first, end, x, stored);
}

/* Inside SL_ROWS: y [n] = x [n] as bf16, x as it is. */
SL_INLINE void round_elements(size_t n, const float *x, uint16_t *y) {
    SL_LANES()
    for (size_t i = 0; i < n; i++) y[i] = sl_bf16_of_float(x[i]);
}

/* Inside SL_BLOCKS or SL_THREADS: one thread has them all. */
SL_INLINE void settle_block(size_t first, size_t end, float *x, uint16_t *stored) {
    SL_SETTLE(SL_IN_BLOCK, first, end, x, stored);
}

/* The same, with X as it is. */
SL_INLINE void store_block(size_t first, size_t end, const float *x, uint16_t *stored) {
    SL_IN_BLOCK()
    for (size_t i = first; i < end; i++) stored[i] = sl_bf16_of_float(x[i]);
}

#endif
