/* reduce.h - sums and maxima of several arrays: the arithmetic of psum, pmean, pmax and psum_scatter for engines with
 * their own arithmetic. */
#ifndef SL_COLLECTIVES_SUMS_REDUCE_H
#define SL_COLLECTIVES_SUMS_REDUCE_H

#include "collectives/operations.h"

SL_BEGIN_C

/* Combines the INPUTS arrays INPUT[i] [count] elementwise by REDUCTION, in their order (SL_TREE: in tree order).
 * Multiplies the results by SCALE, unless the elements are integers, and writes them to each of the OUTPUTS arrays,
 * which may be inputs. All arrays are in the host's memory. */
void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output);

/* The same for arrays with the layout MATRICES; all inputs share one layout, and all outputs. */
void sl_reduce_matrices(enum sl_reduction reduction, enum sl_dtype dtype, float scale,
                        const struct sl_matrices *matrices, int inputs, const void *const *input, int outputs,
                        void *const *output);

/* The same for arrays readable and writable by the calling thread's device (sl_device.reaches): one target region. */
void sl_reduce_on_device(enum sl_reduction reduction, enum sl_dtype dtype, float scale,
                         const struct sl_matrices *matrices, int inputs, const void *const *input, int outputs,
                         void *const *output);

static inline struct sl_matrices sl_one_array(size_t count) {
    return (struct sl_matrices){1, 1, count, {0, 0}, {0, 0}};
}

SL_END_C
#endif
