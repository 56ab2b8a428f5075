/* block_rows.h - products with weights in quantized blocks, which are widened while they are read: for one row in
 * registers, for more rows a few weights at a time in the first-level cache. Widened weights are never written to
 * memory.
 *
 * A row's operands stay floats. So a row has the same bits as in few_rows.c's multiply_transposed with the weights as
 * floats, with any number of rows. */
#ifndef SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_ROWS_H
#define SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_ROWS_H

#include "layers/formats/quantized/blocks.h"
#include "spmd/base/crew.h"

SL_BEGIN_C

struct sl_block_rows {
    /* Columns [FIRST, END) of C [m, rows] = A [m, columns] B^T, + BIAS [rows] unless NULL. rows and columns are B's. */
    void (*multiply)(const struct sl_blocks *b, size_t first, size_t end, size_t m, const float *a, const float *bias,
                     float *c);
    /* TO [count, columns] = rows of B from FIRST on. */
    void (*widen)(const struct sl_blocks *b, size_t first, size_t count, float *to);
};

extern const struct sl_block_rows sl_block_rows_v2, sl_block_rows_v3, sl_block_rows_v4;

/* Returns table I of this CPU's tables, highest level first; NULL after the last. */
const struct sl_block_rows *sl_block_rows_available(int i);

/* Computes all columns of C. CREW helps; it may be NULL. */
void sl_block_rows_multiply(const struct sl_blocks *b, size_t m, const float *a, const float *bias, float *c,
                            struct sl_crew *crew);
/* TO [rows, columns] = B. CREW helps; it may be NULL. */
void sl_block_rows_widen(const struct sl_blocks *b, float *to, struct sl_crew *crew);

SL_END_C
#endif
