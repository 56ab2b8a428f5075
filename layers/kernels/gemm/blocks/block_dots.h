/* block_dots.h - integer products with weights in quantized blocks. Rows of A are rounded to bytes with one scale for
 * each 32 elements; integers are multiplied and added, and only these sums are scaled. Rounding changes an element of A
 * by at most 1/254 of the largest of its 32 elements. A row's bits depend neither on other rows nor on threads. */
#ifndef SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_DOTS_H
#define SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_DOTS_H

#include "layers/formats/quantized/blocks.h"
#include "spmd/base/crew.h"

SL_BEGIN_C

/* Rows of A, one after another, rounded for one type of weights. */
struct sl_dot_rows {
    int8_t *number; /* [rows, terms] */
    /* A value for each group of weights with one scale, 16 or 32: if weights are codes - base, -base times the sum of
     * the numbers; for types with a minimum, the scaled sum as a float. */
    int32_t *group;
    float *scale;       /* of 32 numbers each */
    size_t rows, terms; /* terms: of each row, whole blocks */
};

/* Bytes of the room for ROWS rounded rows. */
static inline size_t sl_dot_rows_room(size_t rows, size_t terms) { return rows * terms / 32 * (32 + 2 * 4 + 4); }
/* Rows in ROOM, which is aligned to 4 bytes. */
static inline struct sl_dot_rows sl_dot_rows_in(void *room, size_t rows, size_t terms) {
    int32_t *const group = (int32_t *)room;
    float *const scale = (float *)room + rows * terms / 16;
    return (struct sl_dot_rows){(int8_t *)(scale + rows * terms / 32), group, scale, rows, terms};
}

struct sl_block_dots {
    /* Rounds A [x->rows, x->terms] into X. */
    void (*round)(const struct sl_quantized *type, const float *a, const struct sl_dot_rows *x);
    /* Computes columns [FIRST, END) of C [x->rows, b->rows] = X B^T, plus BIAS [b->rows] unless NULL. */
    void (*multiply)(const struct sl_blocks *b, size_t first, size_t end, const struct sl_dot_rows *x,
                     const float *bias, float *c);
};

extern const struct sl_block_dots sl_block_dots_v2, sl_block_dots_v3, sl_block_dots_v4, sl_block_dots_vnni;

/* Returns table I of this CPU's tables, highest level first; NULL after the last. */
const struct sl_block_dots *sl_block_dots_available(int i);

/* Computes C [m, rows] = A [m, columns] B^T, plus BIAS [rows] unless NULL. ROOM has sl_dot_rows_room(m, columns) bytes,
 * aligned to 4. CREW helps; it may be NULL. */
void sl_block_dots_multiply(const struct sl_blocks *b, size_t m, const float *a, const float *bias, float *c,
                            void *room, struct sl_crew *crew);

SL_END_C
#endif
