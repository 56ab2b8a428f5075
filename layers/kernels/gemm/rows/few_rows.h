/* few_rows.h - matrix products with few rows, for which moving the weights takes longer than multiplying them.
 *
 * A microbatch of 8 rows uses every weight only 8 times. If the weights have left the core's own cache since the last
 * microbatch, they must arrive fast. So each tile prefetches the next tile's weights while it multiplies. Libraries do
 * not: with weights in the shared cache oneDNN reaches a quarter of its best rate. The sources (few_rows.c,
 * few_rows_transposed.c) are built once per CPU level. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_FEW_ROWS_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_FEW_ROWS_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_few_rows {
    size_t lanes; /* floats of a vector; the dimension of the vectors must be a multiple of it */

    /* C [m, n] = A [m, k] B [k, n] (+ bias [n], unless NULL), or C += A B. n % lanes == 0. */
    void (*multiply)(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias, bool accumulate,
                     float *c);
    /* C [m, n] (+)= A [m, k] B^T, B stored [n, k]. k % lanes == 0. */
    void (*multiply_transposed)(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c);
};

extern const struct sl_few_rows sl_few_rows_v2, sl_few_rows_v3, sl_few_rows_v4;

/* sl_few_rows for a bf16 B, with the same bits as for the widened B. */
struct sl_few_rows_widening {
    size_t lanes;
    void (*multiply)(size_t m, size_t n, size_t k, const float *a, const uint16_t *b, const float *bias,
                     bool accumulate, float *c);
    void (*multiply_transposed)(size_t m, size_t n, size_t k, const float *a, const uint16_t *b, bool accumulate,
                                float *c);
};

extern const struct sl_few_rows_widening sl_few_rows_widening_v2, sl_few_rows_widening_v3, sl_few_rows_widening_v4;

/* sl_few_rows for bf16 operands; sums are float, and k must be even. */
struct sl_few_rows_bf16 {
    size_t lanes;
    void (*multiply)(size_t m, size_t n, size_t k, const uint16_t *a, const uint16_t *b, const float *bias,
                     bool accumulate, float *c);
    void (*multiply_transposed)(size_t m, size_t n, size_t k, const uint16_t *a, const uint16_t *b, bool accumulate,
                                float *c);
};

extern const struct sl_few_rows_bf16 sl_few_rows_avx512_bf16;

/* Returns the bf16 table, or NULL if this CPU cannot multiply bf16. */
const struct sl_few_rows_bf16 *sl_few_rows_bf16_select(void);

/* Returns the table of this CPU's highest level. */
const struct sl_few_rows *sl_few_rows_select(void);

/* Returns table I of this CPU's tables, highest level first; NULL after the last. */
const struct sl_few_rows *sl_few_rows_available(int i);
/* Returns the widening table of the same level. */
const struct sl_few_rows_widening *sl_few_rows_widening_available(int i);

SL_END_C
#endif
