/* few_rows.c - matrix products with few rows, built once per CPU level.
 *
 * The build defines SL_FEW_ROWS, the table's name, and lets the compiler fuse a * b + c. No row's bits depend on the
 * other rows: a tile may have any number of them. */
#include "layers/kernels/rows/few_rows.h"
#include "layers/kernels/rows/lanes_internal.h"
#include "spmd/base/memory.h"

#include <string.h>

enum {
    PART = 320,         /* of sums whose terms are added one by one */
    STRIDE = PART + 16, /* between copied rows of A: they fall into different sets of the first-level cache */
    BLOCK = 128,        /* rows of A that are copied at a time */
    AHEAD = 8,          /* rows of B between what is multiplied and what is asked for */
};

struct product {
    size_t m, n, k;
    const float *a, *b, *bias; /* bias may be NULL */
    bool accumulate;
    float *c;
};

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The parts that Eigen makes of sums with so few rows: XLA's bits. */
static inline size_t part_of_sums(size_t k) {
    const size_t parts = (k + PART - 1) / PART;
    return sl_round_up((k + parts - 1) / parts, 8);
}

/* CALL with the number of rows as a constant: 1 to TILE. */
#define WITH_ROWS(rows, call)                                                                                          \
    switch (rows) {                                                                                                    \
    case 1:                                                                                                            \
        call(1);                                                                                                       \
        break;                                                                                                         \
    case 2:                                                                                                            \
        call(2);                                                                                                       \
        break;                                                                                                         \
    case 3:                                                                                                            \
        call(3);                                                                                                       \
        break;                                                                                                         \
    case 4:                                                                                                            \
        call(4);                                                                                                       \
        break;                                                                                                         \
    case 5:                                                                                                            \
        if (TILE > 5) call(5);                                                                                         \
        break;                                                                                                         \
    case 6:                                                                                                            \
        if (TILE > 6) call(6);                                                                                         \
        break;                                                                                                         \
    case 7:                                                                                                            \
        if (TILE > 7) call(7);                                                                                         \
        break;                                                                                                         \
    default:                                                                                                           \
        call(TILE);                                                                                                    \
        break;                                                                                                         \
    }

/* ---- C = A B ---- */

/* What a tile asks for of the next panel: in each of so many STEPS, vectors that lie APART. */
struct wanted {
    const float *from;
    size_t apart, step, next_tile; /* floats */
    size_t steps;
};

/* Some columns of B over a part of the sums. The first tile of rows reads them from B, row by row, and may copy them
 * side by side. The other tiles read the copy, and ask for the next panel meanwhile. */
struct panel {
    size_t depth;
    const float *b;    /* first row and column */
    const float *next; /* those of the next panel */
    float *copy;
    const float *bias;
    struct wanted wanted;
};

enum source { FROM_B, FROM_B_COPYING, FROM_COPY };

/* ROWS rows of C, VECTORS vectors of columns, over a part of the sums; A's rows lie STRIDE apart. */
static inline __attribute__((always_inline)) void tile(const struct product *p, const struct panel *panel,
                                                       const float *a, float *c, const int rows, const int vectors,
                                                       const enum source source) {
    vector sum[TILE][WIDE];
    const float *b = source == FROM_COPY ? panel->copy : panel->b;
    const struct wanted *wanted = &panel->wanted;
    const float *ahead = source == FROM_COPY ? wanted->from : panel->b + AHEAD * p->n;
    const size_t width = (size_t)vectors * LANES, row = source == FROM_COPY ? width : p->n, depth = panel->depth;
    float *copy = panel->copy;
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < vectors; v++) {
            sum[i][v] = (vector){0};
            __builtin_prefetch(c + (size_t)i * p->n + v * LANES, 1, 3);
        }
    }
    for (size_t l = 0; l < depth; l++, b += row, ahead += source == FROM_COPY ? wanted->step : p->n) {
        vector w[WIDE];
        if (source != FROM_COPY && l + AHEAD == depth) ahead = panel->next;
        if (source != FROM_COPY) {
            SL_UNROLL
            for (int v = 0; v < vectors; v++) __builtin_prefetch(ahead + v * LANES, 0, 3);
        } else if (l < wanted->steps) {
            SL_UNROLL
            for (int v = 0; v < vectors; v++) __builtin_prefetch(ahead + (size_t)v * wanted->apart, 0, 2);
        }
        SL_UNROLL
        for (int v = 0; v < vectors; v++) w[v] = load(b + v * LANES);
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            const vector x = spread(a[i * STRIDE + l]);
            SL_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] += x * w[v];
        }
        if (source == FROM_B_COPYING) {
            SL_UNROLL
            for (int v = 0; v < vectors; v++) store(copy + v * LANES, w[v]);
            copy += width;
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

/* Tiles of a panel that was copied. */
static inline __attribute__((always_inline)) void tiles(const struct product *p, struct panel *panel, const float *a,
                                                        float *c, size_t rows, const int vectors) {
    for (; rows >= TILE; rows -= TILE, a += TILE * STRIDE, c += TILE * p->n) {
        tile(p, panel, a, c, TILE, vectors, FROM_COPY);
        panel->wanted.from += panel->wanted.next_tile;
    }
    panel->wanted.steps = 0;
#define TILE_OF_COPY(some) tile(p, panel, a, c, some, vectors, FROM_COPY)
    if (rows) WITH_ROWS(rows, TILE_OF_COPY)
}

static inline __attribute__((always_inline)) void columns(const struct product *p, struct panel *panel, const float *a,
                                                          float *c, const int vectors) {
    if (p->m > TILE) {
        tile(p, panel, a, c, TILE, vectors, FROM_B_COPYING);
        tiles(p, panel, a + TILE * STRIDE, c + TILE * p->n, p->m - TILE, vectors);
    } else {
#define TILE_OF_B(some) tile(p, panel, a, c, some, vectors, FROM_B)
        WITH_ROWS(p->m, TILE_OF_B)
    }
}

/* Vectors of the next panel where LEFT are left: no panel is narrow if another one can be narrower. */
static inline size_t across(size_t left) { return left == WIDE + 1 ? (left + 1) / 2 : smaller(left, WIDE); }

/* Each tile but the first asks for its share of the rows of the next panel. */
static void share(struct wanted *wanted, const struct product *p, size_t depth) {
    wanted->steps = (depth * TILE + p->m - TILE - 1) / (p->m - TILE);
    wanted->next_tile = wanted->steps * p->n;
}

/* Up to BLOCK rows of C, over the part of the sums that begins at FROM. A: the rows of A, STRIDE apart. */
static void multiply_part(const struct product *p, size_t from, size_t depth, const float *a) {
    _Alignas(SL_CACHE_LINE) float copy[PART * WIDE * LANES];
    const float *b = p->b + from * p->n;
    for (size_t column = 0, vectors; column < p->n; column += vectors * LANES) {
        vectors = across((p->n - column) / LANES);
        const size_t after = column + vectors * LANES;
        const float *next = after < p->n ? b + after : b + depth * p->n;
        struct panel panel = {
            depth, b + column, next, copy, p->bias ? p->bias + column : NULL, {next, LANES, p->n, 0, 0}};
        if (p->m > TILE) share(&panel.wanted, p, depth);
        if (vectors == WIDE)
            columns(p, &panel, a, p->c + column, WIDE);
        else if (WIDE > 2 && vectors == 2)
            columns(p, &panel, a, p->c + column, 2);
        else
            columns(p, &panel, a, p->c + column, 1);
    }
}

typedef void part_of_product(const struct product *, size_t from, size_t depth, const float *a);

/* The sums are computed in parts, for up to BLOCK rows of C at a time. */
static inline void multiply_parts(const struct product *all, part_of_product *compute) {
    _Alignas(SL_CACHE_LINE) float a[BLOCK * STRIDE];
    const size_t k = all->k, part = part_of_sums(k);
    for (size_t row = 0; row < all->m; row += BLOCK) {
        struct product p = *all;
        p.m = smaller(all->m - row, BLOCK);
        p.c += row * p.n;
        for (size_t from = 0; from < k; from += part) {
            const size_t depth = smaller(k - from, part);
            for (size_t i = 0; i < p.m; i++) memcpy(a + i * STRIDE, p.a + (row + i) * k + from, depth * sizeof *a);
            p.bias = from + depth == k ? all->bias : NULL;
            p.accumulate = from || all->accumulate;
            compute(&p, from, depth, a);
        }
    }
}

static void multiply(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias, bool accumulate,
                     float *c) {
    const struct product p = {m, n, k, a, b, bias, accumulate, c};
    multiply_parts(&p, multiply_part);
}

/* ---- C = A B^T ---- */

enum {
    PAIR = 2, /* rows of B that share a load of A */
    SUMS = PAIR * TILE > LANES ? PAIR *TILE : LANES,
    DEPTH = 512,      /* of dot products whose rows of A stay in the first-level cache */
    DOT_ROWS = 64,    /* rows of A that are packed at a time */
    DOT_COLUMNS = 64, /* rows of B that stay in the second-level cache for all of them */
    LEAST_AHEAD = 4,  /* tiles, from which on the next rows of B are asked for while these are multiplied */
};

/* ROWS rows of C, COLUMNS columns, over DEPTH of the sums: dot products of packed rows of A and rows of B. The next
 * rows of B are asked for meanwhile. */
static inline __attribute__((always_inline)) void dots(const struct product *p, const vector *a, const float *b,
                                                       size_t depth, float *c, const int rows, const int columns) {
    vector sum[SUMS];
    SL_UNROLL
    for (int i = 0; i < SUMS; i++) sum[i] = (vector){0};
    for (size_t l = 0; l < depth; l += LANES, a += rows) {
        vector w[PAIR];
        SL_UNROLL
        for (int j = 0; j < columns; j++) {
            const float *weights = b + (size_t)j * p->k + l;
            __builtin_prefetch(weights + PAIR * p->k, 0, 3);
            w[j] = load(weights);
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

/* The rows of B that are multiplied after these, for the second-level cache: each tile asks for SHARE lines of them. */
struct ahead {
    const float *row;
    size_t rows, share; /* rows that are left */
    size_t at;          /* in the row */
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

/* So many COLUMNS of C, ROWS rows. */
static inline __attribute__((always_inline)) void dot_columns(const struct product *p, const vector *a, const float *b,
                                                              size_t depth, size_t columns, struct ahead *ahead,
                                                              float *c, const int rows) {
    size_t j = 0;
    for (; j + PAIR <= columns; j += PAIR) {
        ask(ahead, p, depth);
        dots(p, a, b + j * p->k, depth, c + j, rows, PAIR);
    }
    if (j < columns) dots(p, a, b + j * p->k, depth, c + j, rows, 1);
}

/* Up to DOT_ROWS rows of C, over DEPTH of the sums. The rows of A of each tile are packed vector by vector. */
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
    /* Few tiles multiply as fast as weights arrive: to ask for more would only cost time. */
    const size_t tiles = (p->m + TILE - 1) / TILE, lines = PAIR * depth * sizeof(float) / SL_CACHE_LINE;
    const size_t share = tiles < LEAST_AHEAD ? 0 : lines / tiles + 1;
    for (size_t column = 0; column < p->n; column += DOT_COLUMNS) {
        const size_t columns = smaller(p->n - column, DOT_COLUMNS), next = column + columns;
        struct ahead ahead = {p->b + next * p->k, smaller(p->n - next, DOT_COLUMNS), share, 0};
        for (size_t row = 0; row < p->m; row += TILE) {
            const vector *a = packed + row * (depth / LANES);
            const float *b = p->b + column * p->k;
            float *c = p->c + row * p->n + column;
#define DOT_COLUMNS_OF(rows) dot_columns(p, a, b, depth, columns, &ahead, c, rows)
            WITH_ROWS(smaller(p->m - row, TILE), DOT_COLUMNS_OF)
        }
    }
}

static void multiply_transposed(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c) {
    for (size_t row = 0; row < m; row += DOT_ROWS) {
        for (size_t l = 0; l < k; l += DEPTH) {
            const struct product p = {
                smaller(m - row, DOT_ROWS), n, k, a + row * k + l, b + l, NULL, l || accumulate, c + row * n};
            dot_rows(&p, smaller(k - l, DEPTH));
        }
    }
}

/* ---- C = A B^T, for many rows: B's columns are copied as those of B^T ---- */

/* to [depth, vectors of LANES] = the transpose of rows of B, which lie K apart. */
static void transpose(const float *b, size_t k, size_t depth, size_t vectors, float *to) {
    const size_t width = vectors * LANES;
    for (size_t v = 0; v < vectors; v++, b += LANES * k, to += LANES) {
        size_t l = 0;
        for (; l + 4 <= depth; l += 4) {
            vector columns[4];
            load_columns(b + l, k, columns);
            for (size_t i = 0; i < 4; i++) store(to + (l + i) * width, columns[i]);
        }
        for (; l < depth; l++) {
            for (size_t i = 0; i < LANES; i++) to[l * width + i] = b[i * k + l];
        }
    }
}

/* As multiply_part. */
static void transposed_part(const struct product *p, size_t from, size_t depth, const float *a) {
    _Alignas(SL_CACHE_LINE) float copy[PART * WIDE * LANES];
    for (size_t column = 0, vectors; column < p->n; column += vectors * LANES) {
        vectors = across((p->n - column) / LANES);
        const float *b = p->b + column * p->k + from;
        struct panel panel = {depth, b,    b,
                              copy,  NULL, {b + vectors * LANES * p->k, p->k, LANES, vectors * p->k, depth / LANES}};
        transpose(b, p->k, depth, vectors, copy);
        if (vectors == WIDE)
            tiles(p, &panel, a, p->c + column, p->m, WIDE);
        else if (WIDE > 2 && vectors == 2)
            tiles(p, &panel, a, p->c + column, p->m, 2);
        else
            tiles(p, &panel, a, p->c + column, p->m, 1);
    }
}

static void multiply_transposed_many(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                     float *c) {
    const struct product p = {m, n, k, a, b, NULL, accumulate, c};
    multiply_parts(&p, transposed_part);
}

const struct sl_few_rows SL_FEW_ROWS = {.lanes = LANES,
                                        .multiply = multiply,
                                        .multiply_transposed = multiply_transposed,
                                        .multiply_transposed_many = multiply_transposed_many};
