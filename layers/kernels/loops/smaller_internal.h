/* smaller_internal.h - the smaller of two sizes. */
#ifndef SL_LAYERS_KERNELS_LOOPS_SMALLER_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_SMALLER_INTERNAL_H

#include "spmd/base/numbers/vector_math.h"

SL_INLINE size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

#endif
