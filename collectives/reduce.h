/* reduce.h - sums and maxima of several arrays: the arithmetic of psum, pmean, pmax and psum_scatter for engines that
 * compute it themselves. */
#ifndef SL_COLLECTIVES_REDUCE_H
#define SL_COLLECTIVES_REDUCE_H

#include "spmd/engine.h"

SL_BEGIN_C

/* Combines the INPUTS arrays INPUT[i] [count] elementwise, in their order, by REDUCTION. Unless the elements are
 * integers, the results are multiplied by SCALE. They are written to each of the OUTPUTS arrays, which may be inputs.
 * All arrays are in the host's memory. */
void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output);

/* The same for arrays that the calling thread's device can read and write (sl_device.reaches). */
void sl_reduce_on_device(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
                         const void *const *input, int outputs, void *const *output);

SL_END_C
#endif
