/* blocks.h - a quantized matrix in a file's own format: rows of whole blocks (quantized.h), in the file's memory. */
#ifndef SL_LAYERS_FORMATS_QUANTIZED_BLOCKS_H
#define SL_LAYERS_FORMATS_QUANTIZED_BLOCKS_H

#include "layers/formats/quantized/quantized.h"

SL_BEGIN_C

/* A matrix [rows, columns]. Zero-initialized, there is none. The bytes are not owned, may be at any address, and are
 * never written. */
struct sl_blocks {
    const struct sl_quantized *type;
    const uint8_t *at; /* the first row; NULL: there is no matrix */
    size_t stride;     /* bytes from one row to the next */
    size_t rows, columns;
    size_t head; /* rows of a head; within a head, rows 2i and 2i + 1 of the file are rows i and i + head / 2 of the
                    matrix; 0: rows are in the file's order */
    bool dots;   /* products round the other operand to bytes (kernels/gemm/blocks/block_dots.h) */
};

/* Bytes of a row. */
static inline size_t sl_blocks_row_bytes(const struct sl_blocks *blocks) {
    return blocks->columns / blocks->type->elements * blocks->type->bytes;
}

/* The first block of ROW. */
static inline const uint8_t *sl_blocks_row(const struct sl_blocks *blocks, size_t row) {
    if (!blocks->head) return blocks->at + row * blocks->stride;
    const size_t in_head = row % blocks->head, half = blocks->head / 2;
    return blocks->at + (row - in_head + 2 * (in_head % half) + in_head / half) * blocks->stride;
}

/* COUNT rows from FIRST on, of a matrix with rows in the file's order. */
static inline struct sl_blocks sl_blocks_rows(const struct sl_blocks *blocks, size_t first, size_t count) {
    struct sl_blocks some = *blocks;
    some.at += first * blocks->stride;
    some.rows = count;
    return some;
}

SL_END_C
#endif
