/* settle_internal.h - rows that kernels round when they are complete. */
#ifndef SL_LAYERS_KERNELS_ROWS_SETTLE_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_SETTLE_INTERNAL_H

#include "spmd/base/bf16.h"
#include "spmd/device/offload.h"

/* Elements FIRST to END of X, inside SL_ROWS; STORED may be NULL. There is a loop for either: of one loop a compiler
 * makes stores under a mask, which are slow where numbers become narrower. */
SL_INLINE void settle_elements(size_t first, size_t end, float *x, uint16_t *stored) {
    if (stored) {
        SL_LANES()
        for (size_t c = first; c < end; c++) {
            stored[c] = sl_bf16_of_float(x[c]);
            x[c] = sl_float_of_bf16(stored[c]);
        }
    } else {
        SL_LANES()
        for (size_t c = first; c < end; c++) x[c] = sl_float_of_bf16(sl_bf16_of_float(x[c]));
    }
}

#endif
