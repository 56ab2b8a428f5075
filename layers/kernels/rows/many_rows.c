/* many_rows.c - matrix products with many rows, built once per CPU level.
 *
 * The build defines SL_MANY_ROWS, the table's name, and lets the compiler fuse a * b + c. Every element of C is the sum
 * of parts; within a part, which depends on k alone, terms are added one by one. So no row's bits depend on the other
 * rows, nor on the size of tiles and blocks. */
#include "layers/kernels/rows/many_rows.h"
#include "layers/kernels/rows/lanes_internal.h"
#include "spmd/base/memory.h"

#include <string.h>

/* A tile's sums fill the registers. A block of the left operand and a panel of the right one lie in the second-level
 * cache, a tile's rows in the first-level one. */
enum {
    ROWS = LANES == 16 ? 12 : 6, /* of a tile */
    VECTORS = 2,                 /* of columns of a tile */
    WIDTH = VECTORS * LANES,
    STEP = ROWS / 3,                   /* tiles of fewer rows have a multiple of it */
    DEPTH = LANES == 16 ? 512 : 256,   /* terms of a part of the sums, at most */
    STRIDE = DEPTH + 16,               /* between copied rows: they fall into different sets of the first-level cache */
    BLOCK = LANES == 16 ? 240 : 120,   /* rows of the left operand that are copied at a time */
    PANELS = LANES == 16 ? 8 : 12,     /* of the right operand that are copied at a time */
    SLOWEST = 16,
    AHEAD = 8,                        /* rows of a panel between what is copied and what is asked for */
};

struct product {
    size_t m, n, k;
    const float *a, *b, *bias; /* bias may be NULL */
    bool accumulate;
    float *c;
};

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ALL in parts of at most MOST, all alike but the last; a part is a multiple of UNIT. */
static inline size_t even(size_t all, size_t most, size_t unit) {
    const size_t parts = (all + most - 1) / most;
    return sl_round_up((all + parts - 1) / parts, unit);
}

static inline size_t part_of_sums(size_t k) { return even(k, DEPTH, LANES); }

/* ---- copies ---- */

/* to[c][r] = from[r][c]. */
static void copy_transposed(const float *from, size_t stride, size_t rows, size_t cols, float *to, size_t to_stride) {
    size_t r = 0;
    for (; r + LANES <= rows; r += LANES) {
        const float *in = from + r * stride;
        size_t c = 0;
        for (; c + 4 <= cols; c += 4) {
            vector columns[4];
            load_columns(in + c, stride, columns);
            for (size_t i = 0; i < 4; i++) store(to + (c + i) * to_stride + r, columns[i]);
        }
        for (; c < cols; c++) {
            for (size_t i = 0; i < LANES; i++) to[c * to_stride + r + i] = in[i * stride + c];
        }
    }
    for (; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) to[c * to_stride + r] = from[r * stride + c];
    }
}

/* What is copied while tiles are multiplied: rows of pieces, a piece being WIDTH floats. */
struct stream {
    const float *from;
    float *to;
    size_t step, to_step;         /* from a piece to the next one */
    size_t row_step, to_row_step; /* from behind a row's last piece to the next row's first one */
    size_t ahead;                 /* floats between what is copied and what is asked for */
    size_t left, pieces, rows;    /* pieces left in this row; of a row; rows left, this one among them */
    size_t pace;                  /* terms of sums between two pieces */
};

static inline __attribute__((always_inline)) void copy_piece(const float *from, size_t ahead, float *to) {
    SL_UNROLL
    for (int v = 0; v < VECTORS; v++) {
        __builtin_prefetch(from + ahead + v * LANES, 0, 3);
        store(to + v * LANES, load(from + v * LANES));
    }
}

static inline void end_row(struct stream *stream) {
    stream->from += stream->row_step;
    stream->to += stream->to_row_step;
    stream->left = --stream->rows ? stream->pieces : 0;
}

static void copy_rest(struct stream *stream) {
    while (stream->left) {
        for (; stream->left; stream->left--, stream->from += stream->step, stream->to += stream->to_step)
            copy_piece(stream->from, stream->ahead, stream->to);
        end_row(stream);
    }
}

/* ---- tiles ---- */

static inline __attribute__((always_inline)) void add_terms(const float *left, const float *right,
                                                            vector sum[ROWS][VECTORS], const int rows) {
    vector w[VECTORS];
    SL_UNROLL
    for (int v = 0; v < VECTORS; v++) w[v] = load(right + v * LANES);
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        const vector x = spread(left[i * STRIDE]);
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) sum[i][v] += x * w[v];
    }
}

static inline __attribute__((always_inline)) void clear(vector sum[ROWS][VECTORS], const int rows) {
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) sum[i][v] = (vector){0};
    }
}

/* sums [rows, WIDTH] of DEPTH terms. Scalar instructions take turns with multiplications in these loops: there are few.
 */
static inline __attribute__((always_inline)) void multiply_tile(const float *left, const float *right, size_t depth,
                                                                struct stream *stream, vector sum[ROWS][VECTORS],
                                                                const int rows) {
    const size_t pace = stream->pace;
    clear(sum, rows);
    while (depth >= pace && stream->left) {
        const size_t count = smaller(depth / pace, stream->left), step = stream->step, to_step = stream->to_step;
        const size_t ahead = stream->ahead;
        const float *from = stream->from;
        float *to = stream->to;
        for (size_t i = count; i; i--, from += step, to += to_step) {
            copy_piece(from, ahead, to);
            for (size_t l = pace; l; l--, left++, right += WIDTH) add_terms(left, right, sum, rows);
        }
        depth -= count * pace;
        stream->from = from;
        stream->to = to;
        stream->left -= count;
        if (!stream->left) end_row(stream);
    }
    for (; depth; depth--, left++, right += WIDTH) add_terms(left, right, sum, rows);
}

/* Where a tile's sums go: so many rows and columns of C. */
struct place {
    float *c;
    size_t stride, rows, cols;
    const float *bias;
    bool accumulate;
};

static inline __attribute__((always_inline)) void store_tile(const struct place *place, vector sum[ROWS][VECTORS],
                                                             const int rows) {
    float *c = place->c;
    if (place->cols == WIDTH) {
        SL_UNROLL
        for (int i = 0; i < rows; i++, c += place->stride) {
            if ((size_t)i >= place->rows) break;
            SL_UNROLL
            for (int v = 0; v < VECTORS; v++) {
                if (place->accumulate) sum[i][v] += load(c + v * LANES);
                if (place->bias) sum[i][v] += load(place->bias + v * LANES);
                store(c + v * LANES, sum[i][v]);
            }
        }
        return;
    }
    _Alignas(SL_CACHE_LINE) float sums[ROWS * WIDTH];
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) store(sums + i * WIDTH + v * LANES, sum[i][v]);
    }
    for (size_t i = 0; i < place->rows; i++, c += place->stride) {
        for (size_t j = 0; j < place->cols; j++) {
            float x = sums[i * WIDTH + j];
            if (place->accumulate) x += c[j];
            if (place->bias) x += place->bias[j];
            c[j] = x;
        }
    }
}

/* The tile's rows are columns of C. */
static inline __attribute__((always_inline)) void store_transposed(const struct place *place,
                                                                   vector sum[ROWS][VECTORS], const int rows) {
    _Alignas(SL_CACHE_LINE) float sums[ROWS * WIDTH];
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) store(sums + i * WIDTH + v * LANES, sum[i][v]);
    }
    size_t i = 0;
    for (; i + 4 <= place->rows; i += 4) {
        const float *x = sums + i * WIDTH;
        float *c = place->c + i;
        size_t j = 0;
        for (; j + 4 <= place->cols; j += 4, c += 4 * place->stride) {
            four r[4], t[4];
            for (size_t s = 0; s < 4; s++) r[s] = load_four(x + s * WIDTH + j);
            const four low01 = mix_low(r[0], r[1]), high01 = mix_high(r[0], r[1]);
            const four low23 = mix_low(r[2], r[3]), high23 = mix_high(r[2], r[3]);
            t[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
            t[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
            t[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
            t[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
            for (size_t s = 0; s < 4; s++) {
                float *to = c + s * place->stride;
                if (place->accumulate) t[s] += load_four(to);
                *(four *)(void *)to = t[s];
            }
        }
        for (; j < place->cols; j++, c += place->stride) {
            for (size_t s = 0; s < 4; s++) c[s] = (place->accumulate ? c[s] : 0.0f) + x[s * WIDTH + j];
        }
    }
    for (; i < place->rows; i++) {
        for (size_t j = 0; j < place->cols; j++) {
            float *c = place->c + j * place->stride + i;
            *c = (place->accumulate ? *c : 0.0f) + sums[i * WIDTH + j];
        }
    }
}

static inline __attribute__((always_inline)) void tile_of(const float *left, const float *right, size_t depth,
                                                          struct stream *stream, const struct place *place,
                                                          const bool transposed, const int rows) {
    vector sum[ROWS][VECTORS];
    for (size_t i = 0; i < (transposed ? place->cols : place->rows); i++) {
        const float *c = place->c + i * place->stride;
        __builtin_prefetch(c, 1, 3);
        __builtin_prefetch(c + (transposed ? ROWS : WIDTH) - 1, 1, 3);
    }
    multiply_tile(left, right, depth, stream, sum, rows);
    if (transposed)
        store_transposed(place, sum, rows);
    else
        store_tile(place, sum, rows);
}

static inline __attribute__((always_inline)) void tile(const float *left, const float *right, size_t depth,
                                                       struct stream *stream, const struct place *place,
                                                       const bool transposed) {
    if (place->rows > 2 * STEP)
        tile_of(left, right, depth, stream, place, transposed, 3 * STEP);
    else if (place->rows > STEP)
        tile_of(left, right, depth, stream, place, transposed, 2 * STEP);
    else
        tile_of(left, right, depth, stream, place, transposed, STEP);
}

/* ---- C = A B and C = A^T B: rows of B are copied panel by panel ---- */

struct right_panel {
    _Alignas(SL_CACHE_LINE) float at[DEPTH * WIDTH];
};

/* Whole vectors are copied meanwhile; the rest, and zeros beside it, at once. */
static struct stream open_panel(const struct product *p, size_t from, size_t depth, size_t column, size_t tiles, float *to) {
    const size_t cols = smaller(p->n - column, WIDTH);
    const float *b = p->b + from * p->n + column;
    if (cols == WIDTH) {
        for (size_t l = 0; l < smaller(AHEAD, depth); l++) {
            __builtin_prefetch(b + l * p->n, 0, 3);
            __builtin_prefetch(b + l * p->n + WIDTH - 1, 0, 3);
        }
        return (struct stream){b, to, p->n, WIDTH, 0, 0, AHEAD * p->n, depth, depth, 1, smaller(tiles - 1, SLOWEST)};
    }
    for (size_t l = 0; l < depth; l++) {
        for (size_t j = 0; j < WIDTH; j++) to[l * WIDTH + j] = j < cols ? b[l * p->n + j] : 0.0f;
    }
    return (struct stream){0};
}

static inline __attribute__((always_inline)) void multiply_block(const struct product *p, size_t from, size_t depth,
                                                                 size_t row, size_t rows, const float *left) {
    struct right_panel panel[2];
    const bool last = from + depth == p->k;
    const size_t tiles = (rows + ROWS - 1) / ROWS;
    struct stream stream = open_panel(p, from, depth, 0, tiles, panel[0].at);
    for (size_t column = 0, which = 0; column < p->n; column += WIDTH, which = !which) {
        copy_rest(&stream);
        if (column + WIDTH < p->n) stream = open_panel(p, from, depth, column + WIDTH, tiles, panel[!which].at);
        for (size_t i = 0; i < rows; i += ROWS) {
            const struct place place = {p->c + (row + i) * p->n + column,
                                        p->n,
                                        smaller(rows - i, ROWS),
                                        smaller(p->n - column, WIDTH),
                                        last && p->bias ? p->bias + column : NULL,
                                        from || p->accumulate};
            tile(left + i * STRIDE, panel[which].at, depth, &stream, &place, false);
        }
    }
}

static inline __attribute__((always_inline)) void multiply_blocks(const struct product *p, const bool gradient) {
    _Alignas(SL_CACHE_LINE) float left[BLOCK * STRIDE];
    const size_t part = part_of_sums(p->k), block = even(p->m, BLOCK, ROWS);
    for (size_t row = 0; row < p->m; row += block) {
        const size_t rows = smaller(p->m - row, block);
        for (size_t from = 0; from < p->k; from += part) {
            const size_t depth = smaller(p->k - from, part);
            memset(left + rows * STRIDE, 0, (sl_round_up(rows, STEP) - rows) * STRIDE * sizeof *left);
            if (gradient) {
                copy_transposed(p->a + from * p->m + row, p->m, depth, rows, left, STRIDE);
            } else {
                for (size_t i = 0; i < rows; i++)
                    memcpy(left + i * STRIDE, p->a + (row + i) * p->k + from, depth * sizeof *left);
            }
            multiply_block(p, from, depth, row, rows, left);
        }
    }
}

static void multiply(size_t m, size_t n, size_t k, const float *a, const float *b, const float *bias, bool accumulate,
                     float *c) {
    const struct product p = {m, n, k, a, b, bias, accumulate, c};
    multiply_blocks(&p, false);
}

static void multiply_gradient(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate, float *c) {
    const struct product p = {m, n, k, a, b, NULL, accumulate, c};
    multiply_blocks(&p, true);
}

/* ---- C = A B^T, as C^T = B A^T: rows of B are copied tile by tile ---- */

struct left_tile {
    _Alignas(SL_CACHE_LINE) float at[ROWS * STRIDE];
};

static struct stream open_left(const struct product *p, size_t from, size_t depth, size_t column, size_t panels, float *to) {
    const size_t rows = smaller(p->n - column, ROWS), whole = depth / WIDTH * WIDTH;
    const float *b = p->b + column * p->k + from;
    for (size_t i = 0; i < rows; i++) {
        for (size_t l = whole; l < depth; l++) to[i * STRIDE + l] = b[i * p->k + l];
    }
    memset(to + rows * STRIDE, 0, (ROWS - rows) * STRIDE * sizeof *to);
    if (!whole) return (struct stream){0};
    return (struct stream){b,    to,            WIDTH,         WIDTH, p->k - whole, STRIDE - whole,
                           p->k, whole / WIDTH, whole / WIDTH, rows, smaller(WIDTH * panels / ROWS - 1, SLOWEST)};
}

static void multiply_transposed_block(const struct product *p, size_t from, size_t depth, size_t row, size_t rows,
                                      const float *right, size_t panel) {
    struct left_tile left[2];
    const size_t panels = (rows + WIDTH - 1) / WIDTH;
    struct stream stream = open_left(p, from, depth, 0, panels, left[0].at);
    for (size_t column = 0, which = 0; column < p->n; column += ROWS, which = !which) {
        copy_rest(&stream);
        if (column + ROWS < p->n) stream = open_left(p, from, depth, column + ROWS, panels, left[!which].at);
        for (size_t j = 0; j < rows; j += WIDTH) {
            const struct place place = {p->c + (row + j) * p->n + column, p->n, smaller(p->n - column, ROWS),
                                        smaller(rows - j, WIDTH),         NULL, from || p->accumulate};
            tile(left[which].at, right + j / WIDTH * panel, depth, &stream, &place, true);
        }
    }
}

static void multiply_transposed(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c) {
    const struct product p = {m, n, k, a, b, NULL, accumulate, c};
    _Alignas(SL_CACHE_LINE) float right[PANELS * WIDTH * DEPTH];
    const size_t part = part_of_sums(k);
    const size_t block = even(m, PANELS * WIDTH, WIDTH);
    for (size_t row = 0; row < m; row += block) {
        const size_t rows = smaller(m - row, block);
        for (size_t from = 0; from < k; from += part) {
            const size_t depth = smaller(k - from, part), panel = depth * WIDTH;
            for (size_t j = 0; j < rows; j += WIDTH) {
                const size_t cols = smaller(rows - j, WIDTH);
                float *to = right + j / WIDTH * panel;
                if (cols < WIDTH) memset(to, 0, panel * sizeof *to);
                copy_transposed(a + (row + j) * k + from, k, cols, depth, to, WIDTH);
            }
            multiply_transposed_block(&p, from, depth, row, rows, right, panel);
        }
    }
}

const struct sl_many_rows SL_MANY_ROWS = {
    .multiply = multiply, .multiply_transposed = multiply_transposed, .multiply_gradient = multiply_gradient};
