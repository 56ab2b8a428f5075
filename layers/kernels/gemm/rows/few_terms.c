/* few_terms.c - C = A^T B of few terms: copies both operands to the stack, tile by tile, padded with zeros. */
#include "layers/kernels/gemm/rows/few_terms.h"

#include <immintrin.h>

#include "layers/kernels/loops/smaller_internal.h"

enum {
    LANES = 16,
    PAIR = 2,             /* vectors of columns per load of A */
    WIDTH = PAIR * LANES, /* columns of a panel of B */
    TILE = 12,            /* rows of C per load of B; panels of B come from the second-level cache */
    AHEAD = 2,            /* tiles of C of prefetch distance */
    COLUMNS = 512,        /* columns of B that are copied at a time */
};

struct product {
    size_t m, n, k;
    const float *a, *b;
    bool accumulate;
    float *c;
};

/* Returns the mask of the lanes of vector V, of a panel at COLUMN, that are inside N columns. */
static inline __mmask16 inside(size_t n, size_t column, size_t v) {
    const size_t first = column + v * LANES, count = first < n ? n - first : 0;
    return count < LANES ? (__mmask16)((1u << count) - 1) : (__mmask16)-1;
}

/* to [k, TILE] = columns of A from ROW on. Elements stored beyond a row are overwritten later, or lie beyond the end.
 */
static void copy_a(const struct product *p, size_t row, float *to) {
    const __mmask16 in = inside(p->m, row, 0);
    for (size_t l = 0; l < p->k; l++, to += TILE)
        _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(in, p->a + l * p->m + row));
}

/* to [columns / WIDTH, k, WIDTH] = columns of B from COLUMN on. */
static void copy_b(const struct product *p, size_t column, size_t columns, float *to) {
    for (size_t l = 0; l < p->k; l++) {
        const float *from = p->b + l * p->n + column;
        for (size_t j = 0; j < columns; j += WIDTH) {
            float *panel = to + j * p->k + l * WIDTH;
            for (size_t v = 0; v < PAIR; v++)
                _mm512_storeu_ps(panel + v * LANES, _mm512_maskz_loadu_ps(inside(columns, j, v), from + j + v * LANES));
        }
    }
}

/* Prefetches of a tile, term by term: two rows of a later tile of C, then a row of columns of A that are copied later.
 */
struct wanted {
    const float *c, *a;
    size_t rows;
};

/* Computes a tile. WHOLE: no row or column is beyond C's edges. */
static inline __attribute__((always_inline)) void tile(const struct product *p, size_t row, size_t column,
                                                       const float *a, const float *b, const struct wanted *wanted,
                                                       const bool whole) {
    __m512 sum[TILE][PAIR];
    for (int i = 0; i < TILE; i++) {
        for (int v = 0; v < PAIR; v++) sum[i][v] = _mm512_setzero_ps();
    }
    const float *later = wanted->c, *more = wanted->a;
    for (size_t l = 0; l < p->k; l++, a += TILE, b += WIDTH) {
        if (l < TILE / 2) {
            for (int i = 0; i < 2; i++, later += p->n) {
                for (int v = 0; v < PAIR; v++) __builtin_prefetch(later + v * LANES, 1);
            }
        } else if (l < TILE / 2 + wanted->rows) {
            __builtin_prefetch(more, 0, 2);
            more += p->m;
        }
        __m512 y[PAIR];
        for (int v = 0; v < PAIR; v++) y[v] = _mm512_loadu_ps(b + v * LANES);
        for (int i = 0; i < TILE; i++) {
            const __m512 x = _mm512_set1_ps(a[i]);
            for (int v = 0; v < PAIR; v++) sum[i][v] = _mm512_fmadd_ps(x, y[v], sum[i][v]);
        }
    }
    float *c = p->c + row * p->n + column;
    for (size_t i = 0; i < TILE; i++, c += p->n) { /* a loop over all rows, so that the sums stay in registers */
        for (size_t v = 0; v < PAIR; v++) {
            const __mmask16 in = whole ? (__mmask16)-1 : row + i < p->m ? inside(p->n, column, v) : 0;
            if (p->accumulate) sum[i][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(in, c + v * LANES), sum[i][v]);
            _mm512_mask_storeu_ps(c + v * LANES, in, sum[i][v]);
        }
    }
}

/* Computes TILE rows of C from ROW on, and COLUMNS columns from FIRST on. The tiles prefetch the lines of A at AHEAD.
 */
static void multiply_rows(const struct product *p, size_t row, size_t first, size_t columns, const float *a,
                          const float *b, const float *ahead) {
    const size_t tiles = (columns + WIDTH - 1) / WIDTH, share = p->k / tiles + 1;
    for (size_t t = 0; t < tiles; t++, ahead += share * p->m) {
        const size_t j = t * WIDTH, column = first + j, later = t + AHEAD;
        const size_t next = later < tiles ? later * WIDTH : TILE * p->n + (later - tiles) * WIDTH;
        const struct wanted wanted = {p->c + row * p->n + first + next, ahead, share};
        if (row + TILE <= p->m && j + WIDTH <= columns)
            tile(p, row, column, a, b + j * p->k, &wanted, true);
        else
            tile(p, row, column, a, b + j * p->k, &wanted, false);
    }
}

void sl_few_terms_multiply(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate, float *c) {
    const struct product p = {m, n, k, a, b, accumulate, c};
    _Alignas(SL_CACHE_LINE) float left[SL_FEW_TERMS * TILE + LANES], right[SL_FEW_TERMS * COLUMNS];
    for (size_t first = 0; first < n; first += COLUMNS) {
        const size_t columns = smaller(COLUMNS, n - first);
        copy_b(&p, first, columns, right);
        for (size_t row = 0; row < m; row += TILE) {
            copy_a(&p, row, left);
            multiply_rows(&p, row, first, columns, left, right, a + row + TILE);
        }
    }
}
