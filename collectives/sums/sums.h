/* sums.h - sums of strided rows from the memory of several coordinates. */
#ifndef SL_COLLECTIVES_SUMS_SUMS_H
#define SL_COLLECTIVES_SUMS_SUMS_H

#include <stdbool.h>
#include <stddef.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* Y [rows, columns] (+)= the sum of the members' X[i] [rows, columns], in their order (SL_SUM). Rows of X begin STRIDE
 * floats apart, rows of Y Y_STRIDE floats. Y may be one of X, if it has the same stride. All are in the host's memory.
 */
void sl_add_rows(size_t rows, size_t columns, int members, const float *const *x, size_t stride, bool accumulate,
                 float *y, size_t y_stride);

SL_END_C
#endif
