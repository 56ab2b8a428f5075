/* many_rows.h - matrix products with more rows than few_rows.h is for: blocks of operands are copied, so that what is
 * read again and again lies near and side by side.
 *
 * B passes by, weights as a rule, and is copied while what came before it is multiplied. A is read where it lies,
 * unless its columns are multiplied, or its rows lie where few sets of a cache hold them. One source (many_rows.c) is
 * built twice per CPU level. The copies lie on the stack, of which a call needs up to 700 KB: threads that share a
 * product's plan share no memory that is written, and no call takes any. */
#ifndef SL_LAYERS_KERNELS_ROWS_MANY_ROWS_H
#define SL_LAYERS_KERNELS_ROWS_MANY_ROWS_H

#include "spmd/base/dtype.h"

SL_BEGIN_C

struct sl_many_rows {
    /* C [m, n] = A [m, k] B [k, n] (+ bias [n], unless NULL), or C += A B. C is floats, rounded ones, too, with
     * a copy or without: each tile is rounded when it is complete. */
    void (*multiply)(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias, bool accumulate,
                     struct sl_out c);
    /* C [m, n] (+= bias [n], unless NULL), which is rounded, with a copy or without: what others have multiplied. */
    void (*settle)(size_t m, size_t n, const float *bias, struct sl_out c);
    /* C [m, n] (+)= A [m, k] B^T, B stored [n, k]. */
    void (*multiply_transposed)(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c);
    /* C [m, n] (+)= A^T B, A stored [k, m], B [k, n]. */
    void (*multiply_gradient)(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate, float *c);
};

extern const struct sl_many_rows sl_many_rows_v2, sl_many_rows_v3, sl_many_rows_v4;

/* The same where B is bf16, and so is A of a gradient, with the bits of the floats that they are: they are widened as
 * they are copied. */
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

/* The table of the highest level that this CPU has. */
const struct sl_many_rows *sl_many_rows_select(void);

/* The tables that this CPU can run, the highest level first; NULL after the last. */
const struct sl_many_rows *sl_many_rows_available(int i);
/* The table that belongs to it. */
const struct sl_many_rows_widening *sl_many_rows_widening_available(int i);

SL_END_C
#endif
