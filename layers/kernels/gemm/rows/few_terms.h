/* few_terms.h - C = A^T B of few terms, and products with weights of few columns, for CPUs with AVX-512.
 *
 * A weight gradient is a sum over the rows of a batch: A^T B with one term per row. A classifier's last layer has
 * weights of few columns. For the first such product in a process oneDNN generates all code that it may ever need, on
 * one core: this takes longer than a step of a small model. The products here need no generated code, are about as
 * fast, and have the same bits as oneDNN 2.6 with AVX-512. A row's bits do not depend on the other rows. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_FEW_TERMS_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_FEW_TERMS_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_FEW_TERMS = 64, SL_FEW_COLUMNS = 16 };

/* C [m, n] (+)= A^T B, A stored [k, m], B [k, n]; k <= SL_FEW_TERMS. Terms are added one by one. */
void sl_few_terms_multiply(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate, float *c);

/* C [m, n] = A [m, k] B [k, n] (+ bias [n], unless NULL), or C += A B; n <= SL_FEW_COLUMNS. Terms are added one by one,
 * in parts of a few hundred. */
void sl_few_columns_multiply(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias,
                             bool accumulate, float *c);

/* C [m, n] (+)= A [m, k] B^T, B stored [n, k]; k <= SL_FEW_COLUMNS. The second half of the terms is added to the first
 * half, and so on. */
void sl_few_columns_multiply_transposed(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                        float *c);

SL_END_C
#endif
