/* one_row.h - products of one row, for example in text generation: the time is the time to read the weights once.
 *
 * Weights that are not in cache are read in the order of a CPU's own prefetcher. Every row has the same bits as in
 * few_rows.c, few_rows_bf16.c or gemm_blocked.c. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_ONE_ROW_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_ONE_ROW_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* C [1, columns] = A [1, k] B [k, columns] (+ bias [columns], unless NULL). Rows of B begin N elements apart, so a call
 * can compute some columns of a product, or all if COLUMNS = N. A column's bits do not depend on the other columns. */
typedef void sl_one_row_multiply(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                                 float *c);

struct sl_one_row {
    size_t lanes;                  /* columns and n must be multiples of it */
    sl_one_row_multiply *f32;      /* same bits as few_rows.c */
    sl_one_row_multiply *widening; /* a is float, b is bf16: same bits as few_rows.c with a widened b */
    sl_one_row_multiply *bf16;     /* for CPUs that cannot multiply bf16: same bits as gemm_blocked.c */
};

/* Returns the terms of a part: f32 and widening add up parts in ascending order, then the bias. */
size_t sl_one_row_depth(size_t k);

extern const struct sl_one_row sl_one_row_v2, sl_one_row_v3, sl_one_row_v4;

/* For CPUs that multiply bf16: columns and n must be multiples of 32, k even. Same bits as few_rows_bf16.c. */
extern sl_one_row_multiply sl_one_row_avx512_bf16;

/* Returns the table of the same level as sl_few_rows_available(i). */
const struct sl_one_row *sl_one_row_available(int i);

SL_END_C
#endif
