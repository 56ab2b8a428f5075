/* one_row.h - products of one row, as where text is generated: the time is that of reading the weights once.
 *
 * Weights that are far are read in the order in which a CPU fetches ahead by itself. Every row has the bits that
 * few_rows.c, few_rows_bf16.c or gemm_blocked.c give it. */
#ifndef SL_LAYERS_KERNELS_ROWS_ONE_ROW_H
#define SL_LAYERS_KERNELS_ROWS_ONE_ROW_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* C [1, columns] = A [1, k] B [k, columns] (+ bias [columns], unless NULL), where rows of B are N elements apart: some
 * of a product's columns, or with COLUMNS = N all of them. A column's bits do not depend on which go with it. */
typedef void sl_one_row_multiply(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                                 float *c);

struct sl_one_row {
    size_t lanes;                  /* columns and n must be multiples of it */
    sl_one_row_multiply *f32;      /* the bits of few_rows.c */
    sl_one_row_multiply *widening; /* a is float, b is bf16: the bits of few_rows.c with the floats that they are */
    sl_one_row_multiply *bf16;     /* for CPUs that cannot multiply bf16: the bits of gemm_blocked.c */
};

/* Sums of f32 and widening are taken in parts of so many terms; the parts are added up in ascending order, then the
 * bias.
 */
size_t sl_one_row_depth(size_t k);

extern const struct sl_one_row sl_one_row_v2, sl_one_row_v3, sl_one_row_v4;

/* For CPUs that multiply bf16: columns and n must be multiples of 32, k even. The bits of few_rows_bf16.c. */
extern sl_one_row_multiply sl_one_row_avx512_bf16;

/* The table that belongs to sl_few_rows_available(i). */
const struct sl_one_row *sl_one_row_available(int i);

SL_END_C
#endif
