/* one_row_bf16.c - products of one row of bf16, for CPUs that multiply bf16 in pairs: see few_rows_bf16.c. */
#include "layers/kernels/gemm/rows/one_row.h"
#include "layers/kernels/gemm/rows/packed_weights.h"
#include "spmd/base/memory.h"

#include <immintrin.h>
#include <string.h>

enum {
    LANES = 16,
    PAIRED = 2 * LANES, /* bf16 in a vector */
    STRIP = SL_STRIP_COLUMNS / PAIRED,
    TOGETHER = 8,   /* pairs of rows of B that are read side by side */
    AHEAD = 32,     /* rows of B of prefetch distance */
    FAR = 1 << 18,  /* number of weights above which they are prefetched: fewer may be in a cache */
    COLUMNS = 2048, /* columns whose sums stay in the first-level cache */
};

/* Broadcasts two neighbours of A to all lanes. */
static inline __m512bh spread(const uint16_t *pair) {
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

/* If threads share columns, a thread's part of a row is short, and a CPU's own prefetcher also fetches the other
 * threads' columns. This prefetches into the second-level cache instead. */
static inline void ask_for(const uint16_t *row) { __builtin_prefetch(row, 0, 2); }

/* Adds the products of PAIRS pairs to sums [cols]; each 32 sums have the order of few_rows_bf16.c's low and high sums.
 * ASKS: prefetches later rows, whose addresses may be beyond B's end. */
static inline __attribute__((always_inline)) void add_pairs(size_t cols, size_t n, const uint16_t *a, const uint16_t *b,
                                                            bool fresh, float *sums, const int pairs, const bool asks) {
    __m512bh x[TOGETHER];
    for (int i = 0; i < pairs; i++) x[i] = spread(a + 2 * i);
    for (size_t j = 0; j < cols; j += PAIRED) {
        __m512 low = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + j);
        __m512 high = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + j + LANES);
        for (int i = 0; i < pairs; i++) {
            const uint16_t *rows = b + (size_t)(2 * i) * n + j;
            const __m512i even = _mm512_loadu_si512(rows), odd = _mm512_loadu_si512(rows + n);
            if (asks) {
                ask_for(rows + AHEAD * n);
                ask_for(rows + (AHEAD + 1) * n);
            }
            low = _mm512_dpbf16_ps(low, x[i], (__m512bh)_mm512_unpacklo_epi16(even, odd));
            high = _mm512_dpbf16_ps(high, x[i], (__m512bh)_mm512_unpackhi_epi16(even, odd));
        }
        _mm512_store_ps(sums + j, low);
        _mm512_store_ps(sums + j + LANES, high);
    }
}

static inline void finish_vector(__m512 sum, const float *bias, float *c) {
    if (bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps(bias));
    _mm512_storeu_ps(c, sum);
}

static void finish(size_t cols, const float *sums, const float *bias, float *c) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (size_t j = 0; j < cols; j += PAIRED) {
        const __m512 low = _mm512_load_ps(sums + j), high = _mm512_load_ps(sums + j + LANES);
        finish_vector(_mm512_permutex2var_ps(low, first, high), bias ? bias + j : NULL, c + j);
        finish_vector(_mm512_permutex2var_ps(low, second, high), bias ? bias + j + LANES : NULL, c + j + LANES);
    }
}

/* Computes WIDTH times 32 columns, all columns of B: its rows are contiguous, and are read so. */
static inline __attribute__((always_inline)) void add_strip(size_t k, const uint16_t *a, const uint16_t *b, float *sums,
                                                            const int width) {
    __m512 low[STRIP], high[STRIP];
    for (int j = 0; j < width; j++) low[j] = high[j] = _mm512_setzero_ps();
    for (size_t l = 0; l < k; l += 2, b += 2 * width * PAIRED) {
        const __m512bh x = spread(a + l);
        for (int j = 0; j < width; j++) {
            const __m512i even = _mm512_loadu_si512(b + j * PAIRED), odd = _mm512_loadu_si512(b + (width + j) * PAIRED);
            low[j] = _mm512_dpbf16_ps(low[j], x, (__m512bh)_mm512_unpacklo_epi16(even, odd));
            high[j] = _mm512_dpbf16_ps(high[j], x, (__m512bh)_mm512_unpackhi_epi16(even, odd));
        }
    }
    for (int j = 0; j < width; j++) {
        _mm512_store_ps(sums + j * PAIRED, low[j]);
        _mm512_store_ps(sums + j * PAIRED + LANES, high[j]);
    }
}

static void multiply_strip(size_t n, size_t k, const uint16_t *a, const uint16_t *b, const float *bias, float *c) {
    _Alignas(SL_CACHE_LINE) float sums[STRIP * PAIRED];
    if (n == PAIRED)
        add_strip(k, a, b, sums, 1);
    else
        add_strip(k, a, b, sums, STRIP);
    finish(n, sums, bias, c);
}

void sl_one_row_avx512_bf16(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                            float *c) {
    _Alignas(SL_CACHE_LINE) float sums[COLUMNS];
    const uint16_t *row = a, *weights = b;
    if (columns == n && (n == PAIRED || n == STRIP * PAIRED)) {
        multiply_strip(n, k, row, weights, bias, c);
        return;
    }
    for (size_t column = 0; column < columns; column += COLUMNS) {
        const size_t cols = columns - column < COLUMNS ? columns - column : COLUMNS;
        const bool far = n * k > FAR;
        size_t l = 0;
        for (; l + 2 * TOGETHER <= k; l += 2 * TOGETHER) {
            const uint16_t *rows = weights + l * n + column;
            if (far)
                add_pairs(cols, n, row + l, rows, l == 0, sums, TOGETHER, true);
            else
                add_pairs(cols, n, row + l, rows, l == 0, sums, TOGETHER, false);
        }
        for (; l < k; l += 2) add_pairs(cols, n, row + l, weights + l * n + column, l == 0, sums, 1, false);
        finish(cols, sums, bias ? bias + column : NULL, c + column);
    }
}
