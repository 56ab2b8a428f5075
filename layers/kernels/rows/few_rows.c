/* few_rows.c - matrix products with few rows, built once per CPU level.
 *
 * The build defines SL_FEW_ROWS, the table's name, and lets the compiler fuse a * b + c. */
#include "layers/kernels/rows/few_rows.h"
#include "layers/kernels/rows/vectors_internal.h"
#include "spmd/base/memory.h"

#include <string.h>

enum {
    PAIR = 2,    /* vectors of columns of B, or rows of B^T, that share a load of A */
    PART = 320,  /* of sums whose terms are added one by one */
    DEPTH = 512, /* of dot products whose rows of A stay in the first-level cache */
    AHEAD = 3,   /* pairs of rows of B^T between what is multiplied and what is asked for */
};

/* ---- C = A B ---- */

struct product {
    size_t n, k;
    const float *a, *b, *bias; /* bias may be NULL */
    bool accumulate;
    float *c;
};

/* ROWS rows of C, VECTORS vectors of columns, over DEPTH of the sums. The next tile's weights are asked for meanwhile.
 */
static inline __attribute__((always_inline)) void tile(const struct product *p, const float *a, const float *b,
                                                       size_t depth, const float *bias, bool accumulate, float *c,
                                                       const int rows, const int vectors) {
    vector sum[TILE][PAIR];
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = (vector){0};
    }
    for (size_t l = 0; l < depth; l++, b += p->n) {
        vector w[PAIR];
        for (int v = 0; v < vectors; v++) {
            __builtin_prefetch(b + (vectors + v) * LANES, 0, 2);
            w[v] = load(b + v * LANES);
        }
        for (int i = 0; i < rows; i++) {
            const vector x = spread(a[(size_t)i * p->k + l]);
            for (int v = 0; v < vectors; v++) sum[i][v] += x * w[v];
        }
    }
    for (int i = 0; i < rows; i++, c += p->n) {
        for (int v = 0; v < vectors; v++) {
            if (accumulate) sum[i][v] += load(c + v * LANES);
            if (bias) sum[i][v] += load(bias + v * LANES);
            store(c + v * LANES, sum[i][v]);
        }
    }
}

/* The same over all of the sums, in the parts that Eigen makes of them for so few rows: XLA's bits. */
static inline __attribute__((always_inline)) void whole_tile(const struct product *p, size_t row, size_t column,
                                                             const int rows, const int vectors) {
    const size_t k = p->k, parts = (k + PART - 1) / PART, depth = sl_round_up((k + parts - 1) / parts, 8);
    for (size_t from = 0; from < k; from += depth) {
        const bool last = from + depth >= k;
        tile(p, p->a + row * k + from, p->b + from * p->n + column, last ? k - from : depth,
             last && p->bias ? p->bias + column : NULL, from || p->accumulate, p->c + row * p->n + column, rows,
             vectors);
    }
}

static inline __attribute__((always_inline)) void tiles(const struct product *p, size_t m, size_t column,
                                                        const int vectors) {
    size_t row = 0;
    for (; row + TILE <= m; row += TILE) whole_tile(p, row, column, TILE, vectors);
    for (; row < m; row++) whole_tile(p, row, column, 1, vectors);
}

static void multiply(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias, bool accumulate,
                     float *c) {
    const struct product p = {n, k, a, b, bias, accumulate, c};
    size_t column = 0;
    for (; column + PAIR * LANES <= n; column += PAIR * LANES) tiles(&p, m, column, PAIR);
    for (; column + LANES <= n; column += LANES) tiles(&p, m, column, 1);
}

/* ---- C = A B^T ---- */

/* The sums of the lanes of four vectors. */
static inline four sum_lanes(vector x0, vector x1, vector x2, vector x3) {
    const vector x[4] = {x0, x1, x2, x3};
    four folded[4];
    for (int i = 0; i < 4; i++) {
        float lane[LANES];
        store(lane, x[i]);
        folded[i] = *(const four *)(const void *)lane;
        for (int l = 4; l < LANES; l += 4) folded[i] += *(const four *)(const void *)(lane + l);
    }
    const four low01 = mix_low(folded[0], folded[1]);
    const four high01 = mix_high(folded[0], folded[1]);
    const four low23 = mix_low(folded[2], folded[3]);
    const four high23 = mix_high(folded[2], folded[3]);
    const four sum01 = low01 + high01, sum23 = low23 + high23; /* [0 1 0 1], [2 3 2 3] */
    return __builtin_shufflevector(sum01, sum23, 0, 1, 4, 5) + __builtin_shufflevector(sum01, sum23, 2, 3, 6, 7);
}

/* ROWS rows of C, COLUMNS columns, over DEPTH of the sums: dot products of the packed rows of A and rows of B. */
static inline __attribute__((always_inline)) void dots(const struct product *p, const vector *a, const float *b,
                                                       size_t depth, float *c, const int rows, const int columns) {
    vector sum[TILE][PAIR];
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) sum[i][j] = (vector){0};
    }
    for (size_t l = 0; l < depth; l += LANES, a += rows) {
        vector w[PAIR];
        for (int j = 0; j < columns; j++) {
            const float *weights = b + (size_t)j * p->k + l;
            __builtin_prefetch(weights + AHEAD * PAIR * p->k, 0, 2);
            w[j] = load(weights);
        }
        for (int i = 0; i < rows; i++) {
            const vector x = a[i];
            for (int j = 0; j < columns; j++) sum[i][j] += x * w[j];
        }
    }
    const vector none = {0};
    for (int i = 0; i < rows; i += 2) {
        const bool row = i + 1 < rows, column = columns > 1;
        const four sums = sum_lanes(sum[i][0], column ? sum[i][1] : none, row ? sum[i + 1][0] : none,
                                    row && column ? sum[i + 1][1] : none);
        float *to = c + (size_t)i * p->n;
        to[0] += sums[0];
        if (column) to[1] += sums[1];
        if (row) to[p->n] += sums[2];
        if (row && column) to[p->n + 1] += sums[3];
    }
}

/* All columns of ROWS rows of C. A's are packed first, so that they lie side by side in the first-level cache. */
static inline __attribute__((always_inline)) void dot_rows(const struct product *p, size_t row, const int rows) {
    _Alignas(SL_CACHE_LINE) vector packed[DEPTH / LANES * TILE];
    float *c = p->c + row * p->n;
    for (size_t from = 0; from < p->k; from += DEPTH) {
        const size_t depth = p->k - from < DEPTH ? p->k - from : DEPTH;
        const float *a = p->a + row * p->k + from, *b = p->b + from;
        for (size_t l = 0; l < depth; l += LANES) {
            for (int i = 0; i < rows; i++)
                packed[l / LANES * (size_t)rows + (size_t)i] = load(a + (size_t)i * p->k + l);
        }
        size_t column = 0;
        for (; column + PAIR <= p->n; column += PAIR) dots(p, packed, b + column * p->k, depth, c + column, rows, PAIR);
        if (column < p->n) dots(p, packed, b + column * p->k, depth, c + column, rows, 1);
    }
}

static void multiply_transposed(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c) {
    const struct product p = {n, k, a, b, NULL, true, c};
    size_t row = 0;
    if (!accumulate) memset(c, 0, m * n * sizeof *c);
    for (; row + TILE <= m; row += TILE) dot_rows(&p, row, TILE);
    for (; row < m; row++) dot_rows(&p, row, 1);
}

const struct sl_few_rows SL_FEW_ROWS = {
    .lanes = LANES, .multiply = multiply, .multiply_transposed = multiply_transposed};
