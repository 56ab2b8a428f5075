/* many_rows.h - matrix products with more rows than few_rows.h is for: repeatedly read blocks of operands are copied,
 * to be contiguous and in cache.
 *
 * B, usually weights, is streamed: the next part is copied while the previous part is multiplied. A is read in place,
 * unless its columns are multiplied, or its rows fall into few sets of a cache. One source (many_rows.c) is built twice
 * per CPU level. The copies are on the stack; a call needs up to 700 KB of it. So threads with a common plan write to
 * no common memory, and a call allocates none. */
#ifndef SL_LAYERS_KERNELS_GEMM_ROWS_MANY_ROWS_H
#define SL_LAYERS_KERNELS_GEMM_ROWS_MANY_ROWS_H

#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

struct sl_many_rows {
    /* C [m, n] = A [m, k] B [k, n] (+ bias [n], unless NULL), or C += A B. C is floats, unrounded, or rounded with or
     * without a bf16 copy: each tile is rounded when it is complete. */
    void (*multiply)(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias, bool accumulate,
                     struct sl_out c);
    /* Rounds C [m, n] (+= bias [n], unless NULL) of another kernel's product, with or without a bf16 copy. */
    void (*settle)(size_t m, size_t n, const float *bias, struct sl_out c);
    /* C [m, n] (+)= A [m, k] B^T, B stored [n, k]. */
    void (*multiply_transposed)(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c);
    /* C [m, n] (+)= A^T B, A stored [k, m], B [k, n]. */
    void (*multiply_gradient)(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate, float *c);
};

extern const struct sl_many_rows sl_many_rows_v2, sl_many_rows_v3, sl_many_rows_v4;

/* sl_many_rows for a bf16 B, and a bf16 A of a gradient, with the same bits as for the widened operands: they are
 * widened while they are copied. */
struct sl_many_rows_widening {
    void (*multiply)(size_t m, size_t n, size_t k, const float *a, const uint16_t *b, const float *bias,
                     bool accumulate, struct sl_out c);
    void (*settle)(size_t m, size_t n, const float *bias, struct sl_out c);
    void (*multiply_transposed)(size_t m, size_t n, size_t k, const float *a, const uint16_t *b, bool accumulate,
                                float *c);
    void (*multiply_gradient)(size_t m, size_t n, size_t k, const uint16_t *a, const uint16_t *b, bool accumulate,
                              float *c);
};

extern const struct sl_many_rows_widening sl_many_rows_widening_v2, sl_many_rows_widening_v3, sl_many_rows_widening_v4;

/* Returns the table of this CPU's highest level. */
const struct sl_many_rows *sl_many_rows_select(void);

/* Returns table I of this CPU's tables, highest level first; NULL after the last. */
const struct sl_many_rows *sl_many_rows_available(int i);
/* Returns the widening table of the same level. */
const struct sl_many_rows_widening *sl_many_rows_widening_available(int i);

SL_END_C
#endif
