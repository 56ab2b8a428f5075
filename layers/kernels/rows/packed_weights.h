/* packed_weights.h - a copy of a product's weights that lies as threads read it for few rows: from end to end.
 *
 * A row of weights is cut where a thread's columns end, and where the sums that stay in registers do. What a core takes
 * of it are a few lines, and the next ones lie a whole row further on: a core does not fetch them ahead as it does
 * where all lines follow each other. */
#ifndef SL_LAYERS_KERNELS_ROWS_PACKED_WEIGHTS_H
#define SL_LAYERS_KERNELS_ROWS_PACKED_WEIGHTS_H

#include "spmd/base/crew.h"

SL_BEGIN_C

/* Columns of a strip, in which all rows lie one after another: a thread's columns are as many strips, and what is left
 * is a strip, too. */
enum { SL_STRIP_COLUMNS = 64 };

struct sl_packed_weights {
    size_t n, k;
    size_t
        columns; /* that a thread begins with, whole strips but for its last one; equal for who packs and who reads */
    size_t element; /* bytes of a weight */
};

/* PACKED [n k elements] = B [k, n]; CREW helps, NULL: nobody. */
void sl_packed_weights_fill(const struct sl_packed_weights *shape, const void *b, void *packed, struct sl_crew *crew);

/* Calls MULTIPLY(arg, first, columns, strip) for each strip of PACKED, by any of CREW's threads: STRIP is B's columns
 * [first, first + columns), as [k, columns]. */
typedef void sl_multiply_strip(const void *arg, size_t first, size_t columns, const void *strip);
void sl_packed_weights_multiply(const struct sl_packed_weights *shape, const void *packed, sl_multiply_strip *multiply,
                                const void *arg, struct sl_crew *crew);

SL_END_C
#endif
