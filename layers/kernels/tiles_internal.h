/* tiles_internal.h - small matrix products, made of tiles whose sums stay in registers, for kernels that are built once
 * per CPU level or for devices.
 *
 * On NVIDIA the threads of a team share the tiles. */
#ifndef SL_LAYERS_KERNELS_TILES_INTERNAL_H
#define SL_LAYERS_KERNELS_TILES_INTERNAL_H

#include "layers/kernels/rows/vectors_internal.h"
#include "spmd/base/memory.h"
#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

/* DOWN: rows of a tile, PAIR: its vectors of columns: their sums leave registers for a row of b. A tile of one vector
 * has TALL rows. REST: rows and depth of a product whose columns fill no vector, at most. */
#if defined(SL_DEVICE_CUDA)
#define EACH_TILE(...) SL_PRAGMA(omp parallel for __VA_ARGS__)
enum { DOWN = 4, TALL = 4, PAIR = 1, REST = 32 };
#else
#define EACH_TILE(...)
enum { DOWN = LANES == 16 ? 8 : LANES == 8 ? 6 : 4, TALL = LANES == 4 ? 8 : LANES == 8 ? 12 : 16, PAIR = 2, REST = 64 };
#endif
enum { TERMS = 2 };

SL_INLINE size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* a [rows, depth] b [depth, cols]; b's rows are contiguous. */
struct term {
    size_t depth;
    const float *a;
    size_t a_row, a_column; /* from one row, or column, to the next */
    const float *b;
    size_t b_row;
};

/* c [rows, cols] (+)= the sum of the terms; c's rows are contiguous. */
struct product {
    size_t rows, cols;
    bool accumulate;
    float *c;
    size_t c_row;
    struct term term[TERMS]; /* the second may have depth 0 */
};

SL_INLINE void tile(const struct product *p, size_t row, size_t column, const int rows, const int vectors) {
    vector sum[TALL][PAIR];
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = (vector){0};
    }
    for (int t = 0; t < TERMS; t++) {
        const struct term *term = &p->term[t];
        if (!term->depth) continue; /* then it may have no arrays */
        const size_t a_row = term->a_row, a_column = term->a_column, b_row = term->b_row;
        const float *low = term->a + row * a_row, *b = term->b + column;
        const float *high = low + rows / 2 * a_row; /* from two addresses fewer sums of strides lead to the rows */
        for (size_t l = term->depth; l > 0; l--, low += a_column, high += a_column, b += b_row) {
            vector w[PAIR];
            for (int v = 0; v < vectors; v++) w[v] = load(b + v * LANES);
            for (int i = 0; i < rows; i++) {
                const vector x = spread(i < rows / 2 ? low[(size_t)i * a_row] : high[(size_t)(i - rows / 2) * a_row]);
                for (int v = 0; v < vectors; v++) sum[i][v] += x * w[v];
            }
        }
    }
    float *c = p->c + row * p->c_row + column;
    for (int i = 0; i < rows; i++, c += p->c_row) {
        for (int v = 0; v < vectors; v++) {
            if (p->accumulate) sum[i][v] += load(c + v * LANES);
            store(c + v * LANES, sum[i][v]);
        }
    }
}

/* Up to DOWN rows from ROW on. */
SL_INLINE void tiles(const struct product *p, size_t row, size_t column, const int down, const int vectors) {
    const size_t end = smaller(row + (size_t)down, p->rows);
    if (row + (size_t)down == end) {
        tile(p, row, column, down, vectors);
        return;
    }
    if (down > 8 && row + 8 <= end) {
        tile(p, row, column, 8, vectors);
        row += 8;
    }
    if (down > 4 && row + 4 <= end) {
        tile(p, row, column, 4, vectors);
        row += 4;
    }
    for (; row < end; row++) tile(p, row, column, 1, vectors);
}

/* COLS: a multiple of LANES. */
SL_INLINE void multiply_vectors(const struct product *p, size_t cols) {
    const size_t across = cols / (PAIR * LANES), paired = across * (PAIR * LANES), down = (p->rows + DOWN - 1) / DOWN;
    EACH_TILE()
    for (size_t t = 0; t < across * down; t++) tiles(p, t / across * DOWN, t % across * (PAIR * LANES), DOWN, PAIR);
    if (paired == cols) return;
    EACH_TILE()
    for (size_t row = 0; row < p->rows; row += TALL) tiles(p, row, paired, TALL, 1);
}

/* Columns that fill no vector are multiplied in a copy that does. There the product has one term. */
SL_INLINE void multiply_rest(const struct product *p, size_t column) {
    _Alignas(SL_CACHE_LINE) float b[REST * LANES], c[REST * LANES];
    const struct term *term = &p->term[0];
    const size_t rest = p->cols - column;
    for (size_t l = 0; l < term->depth; l++) {
        for (size_t j = 0; j < LANES; j++) b[l * LANES + j] = j < rest ? term->b[l * term->b_row + column + j] : 0.0f;
    }
    const struct product copy = {p->rows, LANES, false,
                                 c,       LANES, {{term->depth, term->a, term->a_row, term->a_column, b, LANES}}};
    multiply_vectors(&copy, LANES);
    for (size_t i = 0; i < p->rows; i++) {
        float *to = p->c + i * p->c_row + column;
        for (size_t j = 0; j < rest; j++) to[j] = (p->accumulate ? to[j] : 0.0f) + c[i * LANES + j];
    }
}

SL_INLINE void multiply(struct product p) {
    const size_t whole = p.cols / LANES * LANES;
    if (whole) multiply_vectors(&p, whole);
    if (whole < p.cols) multiply_rest(&p, whole);
}

/* ---- rows of a matrix ---- */

struct rows { /* from some row on */
    const float *at;
    size_t stride, cols;
    const uint16_t *bf16; /* unless NULL, the rows are here, and nothing is at AT */
};

SL_INLINE struct rows from_row(struct rows rows, size_t row) {
    if (rows.bf16)
        rows.bf16 += row * rows.stride;
    else
        rows.at += row * rows.stride;
    return rows;
}

/* Four columns of four rows; Y's rows are WIDE. */
SL_INLINE void transpose_four(const float *x, size_t stride, float factor, float *y, size_t wide) {
    four row[4];
    for (size_t i = 0; i < 4; i++) row[i] = factor * *(const four *)(const void *)(x + i * stride);
    const four low01 = mix_low(row[0], row[1]);
    const four high01 = mix_high(row[0], row[1]);
    const four low23 = mix_low(row[2], row[3]);
    const four high23 = mix_high(row[2], row[3]);
    *(four *)(void *)y = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    *(four *)(void *)(y + wide) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    *(four *)(void *)(y + 2 * wide) = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    *(four *)(void *)(y + 3 * wide) = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/* Y [COLS, WIDE] = columns FROM on of COUNT rows, transposed, times FACTOR; a vector's last lanes may be no rows. */
SL_INLINE void transpose(struct rows x, size_t count, size_t from, size_t cols, float factor, float *y, size_t wide) {
    const size_t lanes = sl_round_up(count, LANES), whole = cols / 4 * 4;
    EACH_TILE()
    for (size_t i = 0; i < lanes; i += 4) {
        const float *in = x.at + i * x.stride + from;
        float *out = y + i;
        const bool four_rows = i + 4 <= count;
        for (size_t c = 0; four_rows && c < whole; c += 4)
            transpose_four(in + c, x.stride, factor, out + c * wide, wide);
        for (size_t c = four_rows ? whole : 0; c < cols; c++) {
            for (size_t j = 0; j < smaller(4, lanes - i); j++)
                out[c * wide + j] = i + j < count ? factor * in[j * x.stride + c] : 0.0f;
        }
    }
}

/* y [rows, cols], dense */
SL_INLINE void widen_rows(size_t rows, size_t cols, const uint16_t *x, size_t stride, float *y) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        const uint16_t *in = x + i * stride;
        float *out = y + i * cols;
        size_t c = 0;
        for (; c + LANES <= cols; c += LANES) store(out + c, load_bf16(in + c));
        for (; c < cols; c++) out[c] = sl_float_of_bf16(in[c]);
    }
}

#endif
