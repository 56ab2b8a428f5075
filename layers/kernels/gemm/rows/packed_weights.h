/* packed_weights.h - a copy of a product's weights in the order in which threads read it for few rows.
 *
 * Without a copy, a row of weights is cut at the end of each thread's columns, and of the sums in registers. A core
 * then reads a few lines of a row, and the next lines are a whole row away: a core prefetches them worse than
 * consecutive lines. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_PACKED_WEIGHTS_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_PACKED_WEIGHTS_H

#include "spmd/base/crew.h"

SL_BEGIN_C

/* Columns of a strip. The rows of a strip lie one after another in memory. A thread's columns are whole strips and
 * perhaps a narrower one. */
enum { SL_STRIP_COLUMNS = 64 };

struct sl_packed_weights {
    size_t n, k;
    /* Columns with which each thread begins; the last thread may have fewer. No strip crosses their end, so packing and
     * multiplying must use the same number. */
    size_t columns;
    size_t element; /* bytes of a weight */
};

/* PACKED [n k elements] = B [k, n]. CREW helps; it may be NULL. */
void sl_packed_weights_fill(const struct sl_packed_weights *shape, const void *b, void *packed, struct sl_crew *crew);

/* Calls MULTIPLY(arg, first, columns, strip) for each strip of PACKED, on CREW's threads in any order: STRIP is B's
 * columns [first, first + columns), as [k, columns]. */
typedef void sl_multiply_strip(const void *arg, size_t first, size_t columns, const void *strip);
void sl_packed_weights_multiply(const struct sl_packed_weights *shape, const void *packed, sl_multiply_strip *multiply,
                                const void *arg, struct sl_crew *crew);

SL_END_C
#endif
