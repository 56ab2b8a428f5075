/* few_rows_bf16.c - matrix products of bf16 with few rows, for CPUs that multiply bf16 in pairs: an instruction adds
 * a[2i] * b[2i] + a[2i + 1] * b[2i + 1] to float i, for 16 floats. */
#include "layers/kernels/gemm/rows/few_rows.h"

#include <immintrin.h>
#include <string.h>

enum {
    LANES = 16,
    PAIRED = 2 * LANES,  /* bf16 in a vector */
    PAIR = 2,            /* rows of B^T per load of A */
    TILE = LANES / PAIR, /* rows of A per load of B: 16 sums hide the instruction's latency */
    FEWER = 2,           /* rows of A per load of B if fewer than TILE remain */
    DEPTH = 1024,        /* terms of a part of the sums, so that its rows of A stay in the first-level cache */
    AHEAD = 6,           /* rows of B^T of prefetch distance */
};

struct product {
    size_t n, k;
    const uint16_t *a, *b;
    const float *bias; /* may be NULL */
    bool accumulate;
    float *c;
};

static inline __m512i load(const uint16_t *from) { return _mm512_loadu_si512(from); }

static inline __m512 add_products(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* ---- C = A B ---- */

/* Broadcasts two neighbours of a row of A to all lanes. */
static inline __m512i spread(const uint16_t *pair) {
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
}

static inline void finish(const struct product *p, size_t row, size_t column, __m512 sum) {
    float *c = p->c + row * p->n + column;
    if (p->accumulate) sum = _mm512_add_ps(sum, _mm512_loadu_ps(c));
    if (p->bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps(p->bias + column));
    _mm512_storeu_ps(c, sum);
}

/* Computes ROWS rows and PAIRED columns of C. Two rows of B are interleaved, four columns at a time: the low sums are
 * of columns 0-3, 8-11, 16-19, 24-27. Prefetches the next tile's weights. */
static inline __attribute__((always_inline)) void tile(const struct product *p, size_t row, size_t column,
                                                       const int rows) {
    const uint16_t *a = p->a + row * p->k, *b = p->b + column;
    __m512 low[TILE], high[TILE];
    for (int i = 0; i < rows; i++) low[i] = high[i] = _mm512_setzero_ps();
    for (size_t l = 0; l < p->k; l += 2, b += 2 * p->n) {
        const __m512i even = load(b), odd = load(b + p->n);
        __builtin_prefetch(b + PAIRED, 0, 2);
        __builtin_prefetch(b + p->n + PAIRED, 0, 2);
        const __m512i lows = _mm512_unpacklo_epi16(even, odd), highs = _mm512_unpackhi_epi16(even, odd);
        for (int i = 0; i < rows; i++) {
            const __m512i x = spread(a + (size_t)i * p->k + l);
            low[i] = add_products(low[i], x, lows);
            high[i] = add_products(high[i], x, highs);
        }
    }
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int i = 0; i < rows; i++) {
        finish(p, row + (size_t)i, column, _mm512_permutex2var_ps(low[i], first, high[i]));
        finish(p, row + (size_t)i, column + LANES, _mm512_permutex2var_ps(low[i], second, high[i]));
    }
}

static void multiply(size_t m, size_t n, size_t k, const uint16_t *a, const uint16_t *b, const float *bias,
                     bool accumulate, float *c) {
    const struct product p = {n, k, a, b, bias, accumulate, c};
    for (size_t column = 0; column < n; column += PAIRED) {
        size_t row = 0;
        for (; row + TILE <= m; row += TILE) tile(&p, row, column, TILE);
        for (; row + FEWER <= m; row += FEWER) tile(&p, row, column, FEWER);
        for (; row < m; row++) tile(&p, row, column, 1);
    }
}

/* ---- C = A B^T ---- */

/* Returns the vector whose lane i is the sum of the lanes of x[i]. */
static inline __attribute__((always_inline)) __m512 sum_lanes(__m512 x[LANES]) {
    for (int i = 0; i < 8; i++) { /* 8 vectors: each quarter has alternating sums of x[2i], x[2i + 1] */
        const __m512 even = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
        const __m512 odd = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
        x[i] = _mm512_add_ps(even, odd);
    }
    for (int i = 0; i < 4; i++) { /* 4 vectors: each quarter has one sum of each of x[4i] to x[4i + 3] */
        const __m512 even = _mm512_shuffle_ps(x[2 * i], x[2 * i + 1], 0x44);
        const __m512 odd = _mm512_shuffle_ps(x[2 * i], x[2 * i + 1], 0xee);
        x[i] = _mm512_add_ps(even, odd);
    }
    for (int i = 0; i < 2; i++) { /* 2 vectors: quarters of the first, first, second, second */
        const __m512 even = _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x88);
        const __m512 odd = _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xdd);
        x[i] = _mm512_add_ps(even, odd);
    }
    const __m512 even = _mm512_shuffle_f32x4(x[0], x[1], 0x88), odd = _mm512_shuffle_f32x4(x[0], x[1], 0xdd);
    return _mm512_add_ps(even, odd);
}

/* Computes ROWS rows and COLUMNS columns of C over DEPTH of the sums: dot products of packed rows of A and rows of B.
 */
static inline __attribute__((always_inline)) void dots(const struct product *p, const __m512i *a, const uint16_t *b,
                                                       size_t depth, float *c, const int rows, const int columns) {
    __m512 sum[LANES];
    for (int i = 0; i < LANES; i++) sum[i] = _mm512_setzero_ps();
    for (size_t l = 0; l < depth; l += PAIRED, a += rows) {
        __m512i w[PAIR];
        for (int j = 0; j < columns; j++) {
            const uint16_t *weights = b + (size_t)j * p->k + l;
            __builtin_prefetch(weights + AHEAD * p->k, 0, 2);
            w[j] = load(weights);
        }
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < columns; j++) sum[PAIR * i + j] = add_products(sum[PAIR * i + j], a[i], w[j]);
        }
    }
    float total[LANES];
    _mm512_storeu_ps(total, sum_lanes(sum));
    for (int i = 0; i < rows; i++, c += p->n) {
        for (int j = 0; j < columns; j++) c[j] += total[PAIR * i + j];
    }
}

/* Computes LANES columns of a row of C over DEPTH of the sums. Reads the rows of B one after another, each from end to
 * end, as a CPU's own prefetcher does. */
static void row_columns(const struct product *p, const __m512i *a, const uint16_t *b, size_t depth, float *c) {
    __m512 sum[LANES];
    for (int j = 0; j < LANES; j++, b += p->k) {
        sum[j] = _mm512_setzero_ps();
        for (size_t l = 0; l < depth; l += PAIRED) sum[j] = add_products(sum[j], a[l / PAIRED], load(b + l));
    }
    _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), sum_lanes(sum)));
}

/* Computes all columns of ROWS rows of C. Packs A's rows first, so that they are contiguous in the first-level cache.
 */
static inline __attribute__((always_inline)) void dot_rows(const struct product *p, size_t row, const int rows) {
    __m512i packed[DEPTH / PAIRED * TILE];
    float *c = p->c + row * p->n;
    for (size_t from = 0; from < p->k; from += DEPTH) {
        const size_t depth = p->k - from < DEPTH ? p->k - from : DEPTH;
        const uint16_t *a = p->a + row * p->k + from, *b = p->b + from;
        for (size_t l = 0; l < depth; l += PAIRED) {
            for (int i = 0; i < rows; i++)
                packed[l / PAIRED * (size_t)rows + (size_t)i] = load(a + (size_t)i * p->k + l);
        }
        size_t column = 0;
        for (; rows == 1 && column + LANES <= p->n; column += LANES)
            row_columns(p, packed, b + column * p->k, depth, c + column);
        for (; column + PAIR <= p->n; column += PAIR) dots(p, packed, b + column * p->k, depth, c + column, rows, PAIR);
        if (column < p->n) dots(p, packed, b + column * p->k, depth, c + column, rows, 1);
    }
}

static void multiply_transposed(size_t m, size_t n, size_t k, const uint16_t *a, const uint16_t *b, bool accumulate,
                                float *c) {
    const struct product p = {n, k, a, b, NULL, true, c};
    size_t row = 0;
    if (!accumulate) memset(c, 0, m * n * sizeof *c);
    for (; row + TILE <= m; row += TILE) dot_rows(&p, row, TILE);
    for (; row + FEWER <= m; row += FEWER) dot_rows(&p, row, FEWER);
    for (; row < m; row++) dot_rows(&p, row, 1);
}

const struct sl_few_rows_bf16 sl_few_rows_avx512_bf16 = {
    .lanes = PAIRED, .multiply = multiply, .multiply_transposed = multiply_transposed};
