/* packed_row.h - products of one row with a copy of the weights that lies as threads read it: from end to end.
 *
 * A row of weights is cut where a thread's columns end, and where the sums that stay in registers do. What a core takes
 * of it are a few lines, and the next ones lie a whole row further on: a core does not fetch them ahead as it does
 * where all lines follow each other. */
#ifndef SL_LAYERS_KERNELS_ROWS_PACKED_ROW_H
#define SL_LAYERS_KERNELS_ROWS_PACKED_ROW_H

#include "layers/kernels/rows/one_row.h"
#include "spmd/base/crew.h"

SL_BEGIN_C

/* Columns of a strip, in which all rows lie one after another: a thread's columns are as many strips, and what is left
 * is a strip, too. */
enum { SL_STRIP_COLUMNS = 64 };

struct sl_packed_row {
    size_t n, k;
    size_t columns; /* that a thread takes: whole strips, but for its last one; equal for those who pack and who read */
    size_t element; /* bytes of a weight */
};

/* PACKED [n k elements] = B [k, n]; CREW helps, NULL: nobody. */
void sl_packed_row_fill(const struct sl_packed_row *shape, const void *b, void *packed, struct sl_crew *crew);

/* C [n] = A [k] PACKED (+ BIAS [n], unless NULL), by ONE, which makes each column's bits those of B as it lies. */
void sl_packed_row_multiply(const struct sl_packed_row *shape, sl_one_row_multiply *one, const void *a,
                            const void *packed, const float *bias, float *c, struct sl_crew *crew);

SL_END_C
#endif
