/* reduce.h - sums and maxima of several arrays: the arithmetic of psum, pmean, pmax and psum_scatter where the engine
 * has to do it. */
#ifndef SL_COLLECTIVES_REDUCE_H
#define SL_COLLECTIVES_REDUCE_H

#include "spmd/engine.h"

SL_BEGIN_C

/* Combines COUNT elements of all INPUTS, in their order, by REDUCTION, times SCALE unless the elements are integers,
 * and writes them to each of OUTPUTS, which may be inputs. All lie in the host's memory. */
void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output);

/* The same where the calling thread's device reaches them all (sl_device.reaches). */
void sl_reduce_on_device(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
                         const void *const *input, int outputs, void *const *output);

SL_END_C
#endif
