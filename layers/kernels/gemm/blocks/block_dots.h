/* block_dots.h - integer products with weights in quantized blocks. Rows of A are rounded to bytes with one scale for
 * each 32 elements; integers are multiplied and added, and only these sums are scaled. Rounding changes an element of A
 * by at most 1/254 of the largest of its 32 elements. A row's bits depend neither on other rows nor on threads. */
#ifndef SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_DOTS_H
#define SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_DOTS_H

#include "layers/formats/quantized/blocks.h"
#include "spmd/base/crew.h"

SL_BEGIN_C

enum {
    SL_DOT_DEPTH = 4096,         /* terms of a part of the sums: whole blocks of every type */
    SL_DOT_ELEMENTS = 32 * 4096, /* of rounded rows */
};

/* Rows of A, one after another, rounded for one type of weights: whole rows, or SL_DOT_DEPTH terms of each. */
struct sl_dot_rows {
    int8_t number[SL_DOT_ELEMENTS];
    /* A value for each group of weights with one scale, 16 or 32: if weights are codes - base, -base times the sum of
     * the numbers; for types with a minimum, the scaled sum as a float. */
    int32_t group[SL_DOT_ELEMENTS / 16];
    float scale[SL_DOT_ELEMENTS / 32];
    size_t rows, terms; /* terms: of each row */
};

struct sl_block_dots {
    /* Rounds x->terms terms of x->rows rows of A, whose beginnings are K elements apart. */
    void (*round)(const struct sl_quantized *type, const float *a, size_t k, struct sl_dot_rows *x);
    /* Computes columns [FIRST, END) of C [x->rows, b->rows] = X B^T, plus BIAS [b->rows] unless NULL. X has the terms
     * from FROM on; if FROM is not 0, the products are added to C. */
    void (*multiply)(const struct sl_blocks *b, size_t first, size_t end, size_t from, const struct sl_dot_rows *x,
                     const float *bias, float *c);
};

extern const struct sl_block_dots sl_block_dots_v2, sl_block_dots_v3, sl_block_dots_v4, sl_block_dots_vnni;

/* Returns table I of this CPU's tables, highest level first; NULL after the last. */
const struct sl_block_dots *sl_block_dots_available(int i);

/* Computes C [m, rows] = A [m, columns] B^T, plus BIAS [rows] unless NULL. CREW helps; it may be NULL. */
void sl_block_dots_multiply(const struct sl_blocks *b, size_t m, const float *a, const float *bias, float *c,
                            struct sl_crew *crew);

SL_END_C
#endif
