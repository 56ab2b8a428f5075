/* few_rows.c - matrix products with few rows, built once per CPU level.
 *
 * The build defines SL_FEW_ROWS, the table's name, and its type, SL_FEW_ROWS_TABLE, and lets the compiler fuse a * b +
 * c. A row's bits do not depend on the other rows: a tile may have any number of them. */
#include "layers/kernels/gemm/rows/few_rows.h"
#include "layers/kernels/gemm/rows/few_rows_internal.h"
#include "spmd/base/memory.h"

enum {
    PART = 320,  /* most terms of a part of the sums; they are added one by one */
    BLOCK = 128, /* rows of A per copy */
    LINE = SL_CACHE_LINE / (int)sizeof(weight) / LANES, /* vectors of a cache line */
    EVERY = 8,                                          /* steps per prefetched line of C */
    AHEAD = 2, /* rows of B of prefetch distance: rows that are a power of two apart share few sets of the first-level
                  cache */
};

/* Returns Eigen's part of sums for so few rows, to get XLA's bits. */
static inline size_t part_of_sums(size_t k) {
    const size_t parts = (k + PART - 1) / PART;
    return sl_round_up((k + parts - 1) / parts, 8);
}

/* Rows of the next panel to prefetch, one row in EVERY steps, so that the path from the caches is never full and never
 * empty. */
struct wanted {
    const weight *at;
    size_t every;
};

/* Some columns of B over a part of the sums. The first tile of rows reads them from B, row by row, and copies them side
 * by side for the other tiles. All tiles prefetch the next panel meanwhile. */
struct panel {
    size_t depth;
    const weight *b;    /* first row and column */
    const weight *next; /* first row and column of the next panel */
    float *copy;
    const float *bias;
    struct wanted wanted;
};

enum source { FROM_B, FROM_B_COPYING, FROM_COPY };

/* Adds the products of the panel's terms to a tile of C: ROWS rows, VECTORS vectors wide. A: the rows' terms, packed.
 */
static inline __attribute__((always_inline)) void tile(const struct product *p, struct panel *panel, const float *a,
                                                       float *c, const int rows, const int vectors,
                                                       const enum source source) {
    vector sum[TILE][WIDE];
    const weight *b = panel->b, *ahead = b + AHEAD * p->n; /* not used if the source is the copy */
    const size_t depth = panel->depth;
    float *copy = panel->copy;
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = (vector){0};
    }
    size_t wait = 1;
    for (size_t l = 0; l < depth; l++, b += p->n, ahead += p->n, copy += vectors * LANES) {
        vector w[WIDE];
        const size_t line = l / EVERY;
        if (l % EVERY == 0 && line < (size_t)(rows * vectors))
            __builtin_prefetch(c + line / (size_t)vectors * p->n + line % (size_t)vectors * LANES, 1, 3);
        if (source != FROM_COPY && l + AHEAD == depth) ahead = panel->next;
        if (source != FROM_COPY) {
            SL_UNROLL
            for (int v = 0; v < vectors; v += LINE) __builtin_prefetch(ahead + v * LANES, 0, 3);
        }
        if (source == FROM_B || --wait == 0) { /* a single tile prefetches in each step */
            wait = panel->wanted.every;
            SL_UNROLL
            for (int v = 0; v < vectors; v += LINE) __builtin_prefetch(panel->wanted.at + v * LANES, 0, 2);
            panel->wanted.at += p->n;
        }
        SL_UNROLL
        for (int v = 0; v < vectors; v++)
            w[v] = source == FROM_COPY ? load(copy + v * LANES) : load_weights(b + v * LANES);
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            const vector x = spread(a[l * (size_t)rows + i]);
            SL_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] += x * w[v];
        }
        if (source == FROM_B_COPYING) {
            SL_UNROLL
            for (int v = 0; v < vectors; v++) store(copy + v * LANES, w[v]);
        }
    }
    SL_UNROLL
    for (int i = 0; i < rows; i++, c += p->n) {
        SL_UNROLL
        for (int v = 0; v < vectors; v++) {
            if (p->accumulate) sum[i][v] += load(c + v * LANES);
            if (panel->bias) sum[i][v] += load(panel->bias + v * LANES);
            store(c + v * LANES, sum[i][v]);
        }
    }
}

/* Computes the tiles of a copied panel. */
static inline __attribute__((always_inline)) void tiles(const struct product *p, struct panel *panel, const float *a,
                                                        float *c, size_t rows, const int vectors) {
    for (; rows >= TILE; rows -= TILE, a += TILE * panel->depth, c += TILE * p->n) {
        tile(p, panel, a, c, TILE, vectors, FROM_COPY);
    }
#define TILE_OF_COPY(some) tile(p, panel, a, c, some, vectors, FROM_COPY)
    if (rows) SL_WITH_CONSTANT(rows, TILE, TILE_OF_COPY)
}

static inline __attribute__((always_inline)) void columns(const struct product *p, struct panel *panel, const float *a,
                                                          float *c, const int vectors) {
    if (p->m > TILE) {
        tile(p, panel, a, c, TILE, vectors, FROM_B_COPYING);
        tiles(p, panel, a + TILE * panel->depth, c + TILE * p->n, p->m - TILE, vectors);
    } else {
#define TILE_OF_B(some) tile(p, panel, a, c, some, vectors, FROM_B)
        SL_WITH_CONSTANT(p->m, TILE, TILE_OF_B)
    }
}

/* Returns the vectors of the next panel, of LEFT vectors: widths are balanced, so that no panel is unnecessarily
 * narrow. */
static inline size_t across(size_t left) { return left == WIDE + 1 ? (left + 1) / 2 : smaller(left, WIDE); }

/* Computes up to BLOCK rows of C, over the part of the sums that begins at FROM. A: the terms of A, packed. */
static void multiply_part(const struct product *p, size_t from, size_t depth, const float *a) {
    _Alignas(SL_CACHE_LINE) float copy[PART * WIDE * LANES];
    const weight *b = p->b + from * p->n;
    for (size_t column = 0, vectors; column < p->n; column += vectors * LANES) {
        vectors = across((p->n - column) / LANES);
        const size_t after = column + vectors * LANES;
        const weight *next = after < p->n ? b + after : b + depth * p->n;
        const struct wanted wanted = {next, (p->m + TILE - 1) / TILE};
        struct panel panel = {depth, b + column, next, copy, p->bias ? p->bias + column : NULL, wanted};
        if (vectors == WIDE)
            columns(p, &panel, a, p->c + column, WIDE);
        else if (WIDE > 2 && vectors == 2)
            columns(p, &panel, a, p->c + column, 2);
        else
            columns(p, &panel, a, p->c + column, 1);
    }
}

/* to[l * step], 4 floats = terms FROM to FROM + 3 of the rows X. */
static inline void pack_four(const float *const x[4], size_t from, size_t step, float *to) {
    const four a = load_four(x[0] + from), b = load_four(x[1] + from);
    const four c = load_four(x[2] + from), d = load_four(x[3] + from);
    const four ac = mix_low(a, c), bd = mix_low(b, d), ac_high = mix_high(a, c), bd_high = mix_high(b, d);
    store_four(to, mix_low(ac, bd));
    store_four(to + step, mix_high(ac, bd));
    store_four(to + 2 * step, mix_low(ac_high, bd_high));
    store_four(to + 3 * step, mix_high(ac_high, bd_high));
}

/* to [depth, rows] = the transpose of ROWS rows of A. The last rows come first: if they are fewer than four, surplus
 * elements are overwritten later, or lie beyond the end. */
static void pack_tile(const float *a, size_t k, size_t depth, size_t rows, float *to) {
    for (size_t i = (rows - 1) / 4 * 4 + 4; i > 0;) {
        i -= 4;
        const float *x[4];
        for (size_t j = 0; j < 4; j++) x[j] = a + smaller(i + j, rows - 1) * k;
        size_t l = 0;
        for (; l + 4 <= depth; l += 4) pack_four(x, l, rows, to + l * rows + i);
        for (; l < depth; l++) {
            for (size_t j = i; j < smaller(i + 4, rows); j++) to[l * rows + j] = x[j - i][l];
        }
    }
}

/* Adds up the sums in parts, for up to BLOCK rows of C at a time. */
static void multiply(size_t m, size_t n, size_t k, const float *a, const weight *b, const float *bias, bool accumulate,
                     float *c) {
    _Alignas(SL_CACHE_LINE) float packed[BLOCK * PART + 4];
    const size_t part = part_of_sums(k);
    for (size_t row = 0; row < m; row += BLOCK) {
        struct product p = {smaller(m - row, BLOCK), n, k, a, b, NULL, false, c + row * n};
        for (size_t from = 0; from < k; from += part) {
            const size_t depth = smaller(k - from, part);
            for (size_t i = 0; i < p.m; i += TILE)
                pack_tile(a + (row + i) * k + from, k, depth, smaller(p.m - i, TILE), packed + i * depth);
            p.bias = from + depth == k ? bias : NULL;
            p.accumulate = from || accumulate;
            multiply_part(&p, from, depth, packed);
        }
    }
}

const struct SL_FEW_ROWS_TABLE SL_FEW_ROWS = {
    .lanes = LANES, .multiply = multiply, .multiply_transposed = SL_FEW_ROWS_TRANSPOSED};
