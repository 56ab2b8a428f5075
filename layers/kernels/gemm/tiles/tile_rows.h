/* tile_rows.h - matrix products of bf16 by the CPU's tile unit (AMX).
 *
 * An instruction adds 32 terms to each of 16 x 16 sums: it adds up the 16 even terms and the 16 odd terms one by one as
 * floats, and adds both to the sum. Every element of C takes its terms in this order, from the first to the last, and
 * zeros fill up the last 32. So an element's bits depend neither on the number of rows and columns nor on the threads,
 * and A B has the same bits as A B^T of the transposed B. The unit reads and leaves denormal numbers as zeros and
 * rounds to nearest, whatever the thread's own rounding is.
 *
 * The right operand is copied while it is multiplied, in pairs of terms; the left one is read as it lies, or copied if
 * its columns are multiplied. The copies are on the stack; a call needs up to 600 KB of it. */
#ifndef SL_LAYERS_KERNELS_GEMM_TILES_TILE_ROWS_H
#define SL_LAYERS_KERNELS_GEMM_TILES_TILE_ROWS_H

#include "spmd/base/crew.h"
#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

/* Columns that are copied together: threads' columns of C are multiples of so many. */
enum { SL_TILE_COLUMNS = 64 };

/* Operands of a product, and columns [FIRST, END) of C [m, n] that a call computes. */
struct sl_tile_product {
    size_t m, n, k, first, end;
    const uint16_t *a, *b;
    const float *bias; /* [n], or NULL */
    bool accumulate;   /* C += the product */
    struct sl_out c;   /* floats, unrounded, or rounded with or without a bf16 copy */
};

typedef void sl_multiply_tiles(const struct sl_tile_product *product);

struct sl_tile_rows {
    sl_multiply_tiles *multiply;            /* C = A [m, k] B [k, n] */
    sl_multiply_tiles *multiply_transposed; /* C = A [m, k] B^T, B stored [n, k] */
    sl_multiply_tiles *multiply_gradient;   /* C = A^T B, A stored [k, m], B [k, n] */
};

extern const struct sl_tile_rows sl_tile_rows_amx;

/* Returns the table, or NULL if this process cannot use tiles. */
const struct sl_tile_rows *sl_tile_rows_select(void);

/* Computes all columns of PRODUCT by MULTIPLY, on all threads of CREW (may be NULL) unless it is small. Each column
 * of B is copied once. */
void sl_tile_rows_share(sl_multiply_tiles *multiply, const struct sl_tile_product *product, struct sl_crew *crew);

SL_END_C
#endif
