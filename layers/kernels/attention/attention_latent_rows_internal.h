/* attention_latent_rows_internal.h - products of one row, or of few, with a matrix of floats or bf16. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_ROWS_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_ROWS_INTERNAL_H

#include "layers/kernels/attention/tiles_internal.h"

/* Vectors of a row's product that are computed together. */
enum { ABREAST_VECTORS = 8 };

/* Multiplies in parts if the columns do not fill whole vectors: multiply_rest has room for few rows and terms. */
SL_INLINE void multiply_parts(struct product p, const enum walk walk) {
    const struct term whole = p.term[0];
    if (p.cols % LANES == 0) {
        multiply(p, walk);
        return;
    }
    for (size_t row = 0; row < p.rows; row += REST) {
        for (size_t from = 0; from < whole.depth; from += REST) {
            const struct product part = {
                smaller(REST, p.rows - row),
                p.cols,
                p.accumulate || from > 0,
                p.c + row * p.c_row,
                p.c_row,
                {{smaller(REST, whole.depth - from), whole.a + row * whole.a_row + from * whole.a_column, whole.a_row,
                  whole.a_column, whole.b + from * whole.b_row, whole.b_row}},
                .wanted = NULL};
            multiply(part, walk);
        }
    }
}

/* Computes columns [FIRST, FIRST + VECTORS * LANES) of multiply_row. */
SL_INLINE void multiply_vectors_of_row(const enum sl_dtype dtype, size_t first, size_t depth, const float *x,
                                       const void *b, size_t b_row, const bool accumulate, float *y,
                                       const int vectors) {
    vector sum[ABREAST_VECTORS];
    for (int v = 0; v < vectors; v++) sum[v] = (vector){0};
    SL_ROLLED
    for (size_t l = 0; l < depth; l++) {
        for (int v = 0; v < vectors; v++) sum[v] += x[l] * load_as(dtype, b, l * b_row + first + (size_t)(v * LANES));
    }
    for (int v = 0; v < vectors; v++) {
        float *to = y + first + v * LANES;
        if (accumulate) sum[v] += load(to);
        store(to, sum[v]);
    }
}

/* Computes columns from J on to END of multiply_row, ABREAST_VECTORS vectors at most. A sum waits for its last term: so
 * as many vectors as possible are computed together. */
SL_INLINE void multiply_columns_of_row(const enum sl_dtype dtype, size_t j, size_t end, size_t depth, const float *x,
                                       const void *b, size_t b_row, const bool accumulate, float *y) {
#define SL_VECTORS_ABREAST(vectors)                                                                                    \
    if (j + (vectors) * LANES <= end) {                                                                                \
        multiply_vectors_of_row(dtype, j, depth, x, b, b_row, accumulate, y, vectors);                                 \
        j += (vectors) * LANES;                                                                                        \
    }
    SL_VECTORS_ABREAST(ABREAST_VECTORS)
    SL_VECTORS_ABREAST(ABREAST_VECTORS / 2)
    SL_VECTORS_ABREAST(ABREAST_VECTORS / 4)
    SL_VECTORS_ABREAST(1)
#undef SL_VECTORS_ABREAST
    for (; LANES > 1 && j < end; j++) {
        float sum = 0.0f;
        for (size_t l = 0; l < depth; l++) sum += x[l] * sl_load_float(dtype, b, l * b_row + j);
        y[j] = accumulate ? sum + y[j] : sum;
    }
}

#endif
