/* few_columns.c - products with weights of few columns: a row of weights fits one vector. */
#include "layers/kernels/gemm/rows/few_terms.h"

#include <immintrin.h>

enum {
    LANES = SL_FEW_COLUMNS,
    TILE = 8,   /* rows of C per load of the weights */
    PART = 384, /* terms of a part of the sums; they are added one by one */
};

static inline __mmask16 first_lanes(size_t count) {
    return count < LANES ? (__mmask16)((1u << count) - 1) : (__mmask16)-1;
}

/* ---- C = A B ---- */

struct product {
    size_t n, k;
    const float *a, *b, *bias; /* bias may be NULL */
    bool accumulate;
    float *c;
};

/* Returns the terms of the next part, of LEFT terms: the last two parts are equal. */
static size_t next_part(size_t left) { return left >= 2 * PART ? PART : left > PART ? (left + 1) / 2 : left; }

static inline __attribute__((always_inline)) void tile(const struct product *p, size_t row, const int rows) {
    const __mmask16 in = first_lanes(p->n);
    const float *a = p->a + row * p->k;
    float *c = p->c + row * p->n;
    __m512 whole[TILE];
    for (int i = 0; i < rows; i++) whole[i] = _mm512_maskz_loadu_ps(in, p->bias ? p->bias : c + (size_t)i * p->n);
    for (size_t from = 0, end; from < p->k; from = end) {
        end = from + next_part(p->k - from);
        __m512 sum[TILE];
        for (int i = 0; i < rows; i++) sum[i] = _mm512_setzero_ps();
        for (size_t l = from; l < end; l++) {
            const __m512 w = _mm512_maskz_loadu_ps(in, p->b + l * p->n);
            for (int i = 0; i < rows; i++) sum[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[(size_t)i * p->k + l]), w, sum[i]);
        }
        const bool first = from == 0 && !p->bias && !p->accumulate;
        for (int i = 0; i < rows; i++) whole[i] = first ? sum[i] : _mm512_add_ps(whole[i], sum[i]);
    }
    for (int i = 0; i < rows; i++) _mm512_mask_storeu_ps(c + (size_t)i * p->n, in, whole[i]);
}

void sl_few_columns_multiply(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias,
                             bool accumulate, float *c) {
    const struct product p = {n, k, a, b, bias, accumulate, c};
    size_t row = 0;
    for (; row + TILE <= m; row += TILE) tile(&p, row, TILE);
    for (; row < m; row++) tile(&p, row, 1);
}

/* ---- C = A B^T ---- */

/* to [LANES, LANES] = ROWS rows of B, transposed, padded with zeros. */
static void copy_transposed(const float *b, size_t rows, size_t k, float to[LANES][LANES]) {
    for (size_t l = 0; l < LANES; l++) {
        for (size_t j = 0; j < LANES; j++) to[l][j] = l < k && j < rows ? b[j * k + l] : 0.0f;
    }
}

void sl_few_columns_multiply_transposed(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                        float *c) {
    _Alignas(SL_CACHE_LINE) float w[LANES][LANES];
    for (size_t column = 0; column < n; column += LANES) {
        const size_t columns = n - column < LANES ? n - column : LANES;
        const __mmask16 in = first_lanes(columns);
        copy_transposed(b + column * k, columns, k, w);
        for (size_t i = 0; i < m; i++) {
            float *to = c + i * n + column;
            __m512 term[LANES];
            for (size_t l = 0; l < LANES; l++)
                term[l] = _mm512_mul_ps(_mm512_set1_ps(l < k ? a[i * k + l] : 0.0f), _mm512_load_ps(w[l]));
            for (int half = LANES / 2; half > 0; half /= 2) {
                for (int l = 0; l < half; l++) term[l] = _mm512_add_ps(term[l], term[l + half]);
            }
            if (accumulate) term[0] = _mm512_add_ps(_mm512_maskz_loadu_ps(in, to), term[0]);
            _mm512_mask_storeu_ps(to, in, term[0]);
        }
    }
}
