/* few_rows_transposed.c - C = A B^T with few rows, built once per CPU level.
 *
 * Sums are added lane by lane, for vectors along the rows of B. */
#include "layers/kernels/gemm/rows/few_rows_internal.h"
#include "spmd/base/memory.h"

enum {
    PAIR = 2,       /* rows of B per load of A */
    FAR = 4 * PAIR, /* rows of prefetch distance for the second-level cache */
    LINE = SL_CACHE_LINE / (int)sizeof(weight),
    SUMS = PAIR * TILE > LANES ? PAIR *TILE : LANES,
    DEPTH = 512,      /* terms of a part of the sums, so that its rows of A stay in the first-level cache */
    DOT_ROWS = 64,    /* rows of A per packing */
    DOT_COLUMNS = 64, /* rows of B, in the second-level cache for all rows of A */
    LEAST_AHEAD = 4,  /* fewest tiles for which the next rows of B are prefetched */
};

/* Computes ROWS rows and COLUMNS columns of C over DEPTH of the sums: dot products of packed rows of A and rows of B.
 * It prefetches the next rows of B into both caches, because the first-level cache can have only few lines under way,
 * too few for the latency of memory. */
static inline __attribute__((always_inline)) void dots(const struct product *p, const vector *a, const weight *b,
                                                       size_t depth, float *c, const int rows, const int columns) {
    vector sum[SUMS];
    SL_UNROLL
    for (int i = 0; i < SUMS; i++) sum[i] = (vector){0};
    for (size_t l = 0; l < depth; l += LANES, a += rows) {
        vector w[PAIR];
        SL_UNROLL
        for (int j = 0; j < columns; j++) {
            const weight *weights = b + (size_t)j * p->k + l;
            __builtin_prefetch(weights + PAIR * p->k, 0, 3);
            if (l % LINE == 0) __builtin_prefetch(weights + FAR * p->k, 0, 2);
            w[j] = load_weights(weights);
        }
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            const vector x = a[i];
            SL_UNROLL
            for (int j = 0; j < columns; j++) sum[i * columns + j] += x * w[j];
        }
    }
    _Alignas(SL_CACHE_LINE) float sums[SUMS];
    SL_UNROLL
    for (int i = 0; i < rows * columns; i += LANES) store(sums + i, sum_lanes(sum + i));
    SL_UNROLL
    for (int i = 0; i < rows; i++, c += p->n) {
        SL_UNROLL
        for (int j = 0; j < columns; j++) c[j] = (p->accumulate ? c[j] : 0.0f) + sums[i * columns + j];
    }
}

/* The next rows of B, for the second-level cache: each tile prefetches SHARE lines of them. */
struct ahead {
    const weight *row;
    size_t rows, share; /* rows: remaining rows */
    size_t at;          /* position in the row */
};

static inline void ask(struct ahead *ahead, const struct product *p, size_t depth) {
    for (size_t i = 0; i < ahead->share && ahead->rows; i++) {
        __builtin_prefetch(ahead->row + ahead->at, 0, 2);
        ahead->at += SL_CACHE_LINE / sizeof *ahead->row;
        if (ahead->at < depth) continue;
        ahead->at = 0;
        ahead->row += p->k;
        ahead->rows--;
    }
}

/* Computes ROWS rows and COLUMNS columns of C. */
static inline __attribute__((always_inline)) void dot_columns(const struct product *p, const vector *a, const weight *b,
                                                              size_t depth, size_t columns, struct ahead *ahead,
                                                              float *c, const int rows) {
    size_t j = 0;
    for (; j + PAIR <= columns; j += PAIR) {
        ask(ahead, p, depth);
        dots(p, a, b + j * p->k, depth, c + j, rows, PAIR);
    }
    if (j < columns) dots(p, a, b + j * p->k, depth, c + j, rows, 1);
}

/* Computes up to DOT_ROWS rows of C, over DEPTH of the sums. Packs the rows of A of each tile vector by vector. */
static void dot_rows(const struct product *p, size_t depth) {
    _Alignas(SL_CACHE_LINE) vector packed[DEPTH / LANES * DOT_ROWS];
    vector *to = packed;
    for (size_t row = 0; row < p->m; row += TILE) {
        const float *a = p->a + row * p->k;
        const size_t rows = smaller(p->m - row, TILE);
        for (size_t l = 0; l < depth; l += LANES) {
            for (size_t i = 0; i < rows; i++) *to++ = load(a + i * p->k + l);
        }
    }
    /* Few tiles multiply as fast as weights arrive, so more prefetches would only cost time. */
    const size_t tiles = (p->m + TILE - 1) / TILE, lines = PAIR * depth * sizeof(weight) / SL_CACHE_LINE;
    const size_t share = tiles < LEAST_AHEAD ? 0 : lines / tiles + 1;
    for (size_t column = 0; column < p->n; column += DOT_COLUMNS) {
        const size_t columns = smaller(p->n - column, DOT_COLUMNS), next = column + columns;
        struct ahead ahead = {p->b + next * p->k, smaller(p->n - next, DOT_COLUMNS), share, 0};
        for (size_t row = 0; row < p->m; row += TILE) {
            const vector *a = packed + row * (depth / LANES);
            const weight *b = p->b + column * p->k;
            float *c = p->c + row * p->n + column;
#define DOT_COLUMNS_OF(rows) dot_columns(p, a, b, depth, columns, &ahead, c, rows)
            SL_WITH_CONSTANT(smaller(p->m - row, TILE), TILE, DOT_COLUMNS_OF)
        }
    }
}

/* ---- one row: reads the rows of B one after another, each from end to end, as a CPU's own prefetcher does ---- */

/* Computes LANES columns of C. */
static void row_columns(const struct product *p, size_t depth) {
    const weight *b = p->b;
    vector sum[LANES];
    for (int j = 0; j < LANES; j++, b += p->k) {
        sum[j] = (vector){0};
        for (size_t l = 0; l < depth; l += LANES) sum[j] += load(p->a + l) * load_weights(b + l);
    }
    store(p->c, (p->accumulate ? load(p->c) : (vector){0}) + sum_lanes(sum));
}

/* Processes LANES columns at a time with all their parts, because their weights are contiguous. */
static void one_row(size_t n, size_t k, const float *a, const weight *b, bool accumulate, float *c) {
    for (; n; b += LANES * k, c += LANES, n -= smaller(n, LANES)) {
        for (size_t l = 0; l < k; l += DEPTH) {
            const struct product p = {1, smaller(n, LANES), k, a + l, b + l, NULL, l || accumulate, c};
            if (p.n == LANES)
                row_columns(&p, smaller(k - l, DEPTH));
            else
                dot_rows(&p, smaller(k - l, DEPTH));
        }
    }
}

/* ---- many rows: the same sums, lane by lane, with vectors along the rows of A ---- */

enum {
    TURNED = LANES == 16 ? 4 : 2, /* vectors of rows of a tile */
    TURNED_ROWS = TURNED * LANES,
    TURNED_TILE = LANES == 4 ? 4 : 6, /* columns of a tile: its sums fill the registers */
    TURNED_COLUMNS = 48,              /* columns that are computed before they are transposed back */
    EARLY = 4, /* terms of prefetch distance for transposed rows, which come from the second-level cache */
};

/* Transposes rows of A over DEPTH of the sums, so that terms for one lane of B's vectors are neighbours:
 * to [LANES, depth / LANES, TURNED_ROWS]. */
static void turn(const float *a, size_t k, size_t depth, float *to) {
    const size_t terms = depth / LANES;
    for (size_t v = 0; v < TURNED; v++, a += LANES * k, to += LANES) {
        for (size_t l = 0; l < depth; l += 4) {
            vector columns[4];
            load_columns(a + l, k, columns);
            for (size_t i = 0; i < 4; i++)
                store(to + ((l + i) % LANES * terms + (l + i) / LANES) * TURNED_ROWS, columns[i]);
        }
    }
}

typedef vector turned_sums[TURNED_TILE][TURNED];

/* Some columns of C. */
struct turned {
    const struct product *p;
    const float *a; /* transposed */
    size_t depth;
    size_t column, columns; /* first column; number of columns */
    float *sums;            /* [columns, TURNED_ROWS] */
};

/* Prefetches the next lines of C: each row in one of EVERY (tile, lane) steps. */
static inline void ask_for_row(const struct turned *t, size_t tile, size_t lane) {
    enum { EVERY = TURNED_COLUMNS / TURNED_TILE * LANES / TURNED_ROWS };
    const size_t slot = tile * LANES + lane;
    const float *c = t->p->c + slot / EVERY * t->p->n + t->column;
    if (slot % EVERY) return;
    for (size_t j = 0; j < t->columns; j += SL_CACHE_LINE / sizeof *c) __builtin_prefetch(c + j, 1, 3);
}

/* Computes the same sums as dots for COLUMNS rows of B, lane by lane, and prefetches the next rows. */
static inline __attribute__((always_inline)) void turned_dots(const struct turned *turned, size_t tile,
                                                              const int columns) {
    const struct product *p = turned->p;
    const size_t depth = turned->depth, first = turned->column + tile * TURNED_TILE, next = first + (size_t)columns;
    const float *a = turned->a;
    const weight *b = p->b + first * p->k;
    float *to = turned->sums + tile * TURNED_TILE * TURNED_ROWS;
    struct ahead ahead = {p->b + next * p->k, smaller(p->n - next, TURNED_TILE), 1, 0};
    turned_sums part[4]; /* sums of every fourth lane, in sum_lanes's order */
    for (size_t lane = 0; lane < LANES; lane++) {
        ask_for_row(turned, tile, lane);
        vector sum[TURNED_TILE][TURNED];
        SL_UNROLL
        for (int j = 0; j < columns; j++) {
            SL_UNROLL
            for (int v = 0; v < TURNED; v++) sum[j][v] = (vector){0};
        }
        for (size_t l = lane; l < depth; l += LANES, a += TURNED_ROWS) {
            if (l & LANES) ask(&ahead, p, depth);
            SL_UNROLL
            for (int i = 0; i < TURNED_ROWS; i += SL_CACHE_LINE / (int)sizeof *a)
                __builtin_prefetch(a + EARLY * TURNED_ROWS + i, 0, 3);
            vector x[TURNED];
            SL_UNROLL
            for (int v = 0; v < TURNED; v++) x[v] = load(a + v * LANES);
            SL_UNROLL
            for (int j = 0; j < columns; j++) {
                const vector y = spread(value_of(b[(size_t)j * p->k + l]));
                SL_UNROLL
                for (int v = 0; v < TURNED; v++) sum[j][v] += x[v] * y;
            }
        }
        vector(*into)[TURNED] = part[lane % 4];
        SL_UNROLL
        for (int j = 0; j < columns; j++) {
            SL_UNROLL
            for (int v = 0; v < TURNED; v++) {
                if (lane < 4)
                    into[j][v] = sum[j][v];
                else
                    into[j][v] += sum[j][v];
            }
        }
    }
    for (int j = 0; j < columns; j++, to += TURNED_ROWS) {
        for (int v = 0; v < TURNED; v++)
            store(to + v * LANES, (part[0][j][v] + part[2][j][v]) + (part[1][j][v] + part[3][j][v]));
    }
}

/* C [TURNED_ROWS, columns] (+)= the transpose of X. */
static void turn_back(const struct product *p, const float *x, size_t columns, float *c) {
    size_t j = 0;
    for (; j + LANES <= columns; j += LANES, x += LANES * TURNED_ROWS) {
        for (size_t row = 0; row < TURNED_ROWS; row += 4) {
            vector rows[4];
            load_columns(x + row, TURNED_ROWS, rows);
            for (size_t i = 0; i < 4; i++) {
                float *to = c + (row + i) * p->n + j;
                store(to, (p->accumulate ? load(to) : (vector){0}) + rows[i]);
            }
        }
    }
    for (; j < columns; j++, x += TURNED_ROWS) {
        for (size_t i = 0; i < TURNED_ROWS; i++) c[i * p->n + j] = (p->accumulate ? c[i * p->n + j] : 0.0f) + x[i];
    }
}

/* Computes TURNED_ROWS rows of C, over DEPTH of the sums. */
static void turned_rows(const struct product *p, size_t depth) {
    _Alignas(SL_CACHE_LINE) float a[DEPTH * TURNED_ROWS], sums[TURNED_COLUMNS * TURNED_ROWS];
    turn(p->a, p->k, depth, a);
    for (size_t column = 0; column < p->n; column += TURNED_COLUMNS) {
        const struct turned turned = {p, a, depth, column, smaller(p->n - column, TURNED_COLUMNS), sums};
        for (size_t tile = 0; tile * TURNED_TILE < turned.columns; tile++) {
#define TURNED_DOTS_OF(columns) turned_dots(&turned, tile, columns)
            SL_WITH_CONSTANT(smaller(turned.columns - tile * TURNED_TILE, TURNED_TILE), TURNED_TILE, TURNED_DOTS_OF)
        }
        turn_back(p, sums, turned.columns, p->c + column);
    }
}

/* Full groups of TURNED_ROWS rows are faster by turned_rows, with the same bits. */
void SL_FEW_ROWS_TRANSPOSED(size_t m, size_t n, size_t k, const float *a, const weight *b, bool accumulate, float *c) {
    for (; m >= TURNED_ROWS; m -= TURNED_ROWS, a += TURNED_ROWS * k, c += TURNED_ROWS * n) {
        for (size_t l = 0; l < k; l += DEPTH) {
            const struct product p = {TURNED_ROWS, n, k, a + l, b + l, NULL, l || accumulate, c};
            turned_rows(&p, smaller(k - l, DEPTH));
        }
    }
    if (m == 1) {
        one_row(n, k, a, b, accumulate, c);
        return;
    }
    for (size_t row = 0; row < m; row += DOT_ROWS) {
        for (size_t l = 0; l < k; l += DEPTH) {
            const struct product p = {
                smaller(m - row, DOT_ROWS), n, k, a + row * k + l, b + l, NULL, l || accumulate, c + row * n};
            dot_rows(&p, smaller(k - l, DEPTH));
        }
    }
}
