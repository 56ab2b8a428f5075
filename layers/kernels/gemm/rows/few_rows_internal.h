/* few_rows_internal.h - declarations shared by few_rows.c and few_rows_transposed.c. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_FEW_ROWS_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_FEW_ROWS_INTERNAL_H

#include "layers/kernels/loops/lanes_internal.h"
#include "layers/kernels/gemm/rows/product_internal.h"

/* Calls CALL with COUNT as a constant, from 1 to MOST; MOST is 4 to 8. */
#define SL_WITH_CONSTANT(count, most, call)                                                                            \
    switch (count) {                                                                                                   \
    case 1:                                                                                                            \
        call(1);                                                                                                       \
        break;                                                                                                         \
    case 2:                                                                                                            \
        call(2);                                                                                                       \
        break;                                                                                                         \
    case 3:                                                                                                            \
        call(3);                                                                                                       \
        break;                                                                                                         \
    case 4:                                                                                                            \
        call(4);                                                                                                       \
        break;                                                                                                         \
    case 5:                                                                                                            \
        if (most >= 5) call(5);                                                                                        \
        break;                                                                                                         \
    case 6:                                                                                                            \
        if (most >= 6) call(6);                                                                                        \
        break;                                                                                                         \
    case 7:                                                                                                            \
        if (most >= 7) call(7);                                                                                        \
        break;                                                                                                         \
    default:                                                                                                           \
        call(most);                                                                                                    \
        break;                                                                                                         \
    }

/* C [m, n] (+)= A [m, k] B^T, B stored [n, k]; k % LANES == 0. The build defines its name, too. */
void SL_FEW_ROWS_TRANSPOSED(size_t m, size_t n, size_t k, const float *a, const weight *b, bool accumulate, float *c);

#endif
