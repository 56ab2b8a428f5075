/* many_rows.c - matrix products with many rows, built once per CPU level.
 *
 * The build defines SL_MANY_ROWS, the table's name, and lets the compiler fuse a * b + c. Every element of C is the sum
 * of parts, which depend on k alone; within a part, terms are added one by one. So no row's bits depend on the other
 * rows, nor on the sizes of tiles and blocks. */
#include "layers/kernels/rows/many_rows.h"
#include "layers/kernels/rows/lanes_internal.h"
#include "layers/kernels/rows/product_internal.h"
#include "spmd/base/memory.h"

#include <string.h>

/* A tile of C is the product of rows of a left operand and columns of a right one, and its sums fill the registers. Of
 * one operand a block is copied, which stays in the second-level cache. The other passes by, a tile's width at a time.
 */
enum {
    ROWS = LANES == 16 ? 12 : 6, /* of a tile */
    STEP = ROWS / 3,             /* tiles at the edge have a multiple of it */
    VECTORS = 2,                 /* of columns of a tile */
    WIDTH = VECTORS * LANES,
    DEPTH = 512,                   /* terms of a part, at most */
    STRIDE = DEPTH + 16,           /* between copied rows: they fall into different sets of the first-level cache */
    BLOCK = 20 * ROWS,             /* left rows of a block, at most */
    PANELS = LANES == 16 ? 8 : 12, /* of right columns of a block, at most */
    AHEAD = 8,                     /* pieces between what is copied and what is asked for */
    SLOWEST = 16,                  /* terms that are multiplied between two pieces, at most */
};

/* ALL is cut into parts of at most MOST. They have this size, a multiple of UNIT, but for the last one. */
static inline size_t part_of(size_t all, size_t most, size_t unit) {
    const size_t parts = (all + most - 1) / most;
    return sl_round_up((all + parts - 1) / parts, unit);
}

/* A part of the sums. */
struct part {
    size_t from, depth;
    bool last;
};

static inline struct part part_from(size_t from, size_t k) {
    const size_t depth = smaller(part_of(k, DEPTH, LANES), k - from);
    return (struct part){from, depth, from + depth == k};
}

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

/* ---- what passes by: the next tile's width of it is copied while tiles are multiplied ---- */

/* Rows of pieces, a piece being WIDTH floats. */
struct stream {
    const float *from;
    float *to;
    size_t step, to_step;         /* from a piece to the next one */
    size_t row_step, to_row_step; /* from behind a row's last piece to the next row's first one */
    size_t ahead;                 /* floats between what is copied and what is asked for */
    size_t pieces, rows;          /* of a row; rows left, this one among them */
    size_t left;                  /* pieces of this row; 0: all is copied */
    size_t pace;                  /* terms that are multiplied between two pieces */
};

/* All is copied a little before TERMS terms for each piece are multiplied. */
static inline size_t pace_of(size_t terms) { return terms < 2 ? 1 : smaller(terms - 1, SLOWEST); }

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

/* Where a tile's sums go: rows and columns of the tile that C has. */
struct place {
    float *c;
    size_t stride, rows, cols;
    const float *bias; /* or NULL */
    bool accumulate;
};

static inline __attribute__((always_inline)) void add_term(const float *left, const float *right,
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

/* Scalar instructions take the place of multiplications in these loops: there are few. */
static inline __attribute__((always_inline)) void multiply_tile(const float *left, const float *right, size_t depth,
                                                                struct stream *stream, vector sum[ROWS][VECTORS],
                                                                const int rows) {
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) sum[i][v] = (vector){0};
    }
    while (stream->left && depth >= stream->pace) {
        const size_t pace = stream->pace, count = smaller(depth / pace, stream->left), ahead = stream->ahead;
        const size_t step = stream->step, to_step = stream->to_step;
        const float *from = stream->from;
        float *to = stream->to;
        for (size_t i = count; i; i--, from += step, to += to_step) {
            copy_piece(from, ahead, to);
            for (size_t l = pace; l; l--, left++, right += WIDTH) add_term(left, right, sum, rows);
        }
        depth -= count * pace;
        stream->from = from;
        stream->to = to;
        stream->left -= count;
        if (!stream->left) end_row(stream);
    }
    for (; depth; depth--, left++, right += WIDTH) add_term(left, right, sum, rows);
}

static inline __attribute__((always_inline)) void store_sums(vector sum[ROWS][VECTORS], const int rows, float *sums) {
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) store(sums + i * WIDTH + v * LANES, sum[i][v]);
    }
}

static inline __attribute__((always_inline)) void store_tile(const struct place *place, vector sum[ROWS][VECTORS],
                                                             const int rows) {
    float *c = place->c;
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
}

/* A tile at the right edge of C. */
static void store_narrow(const struct place *place, const float *sums) {
    for (size_t i = 0; i < place->rows; i++, sums += WIDTH) {
        float *c = place->c + i * place->stride;
        for (size_t j = 0; j < place->cols; j++) {
            float sum = sums[j];
            if (place->accumulate) sum += c[j];
            if (place->bias) sum += place->bias[j];
            c[j] = sum;
        }
    }
}

/* to[s] = column s of four rows of SUMS. */
static inline void transpose_four(const float *sums, four to[4]) {
    const four a = load_four(sums), b = load_four(sums + WIDTH);
    const four c = load_four(sums + 2 * WIDTH), d = load_four(sums + 3 * WIDTH);
    const four low_ab = mix_low(a, b), high_ab = mix_high(a, b), low_cd = mix_low(c, d), high_cd = mix_high(c, d);
    to[0] = __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5);
    to[1] = __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7);
    to[2] = __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5);
    to[3] = __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7);
}

/* The tile's rows are columns of C. */
static inline void store_transposed(const struct place *place, const float *sums) {
    const size_t rows = place->rows / 4 * 4, cols = place->cols / 4 * 4, stride = place->stride;
    for (size_t i = 0; i < rows; i += 4) {
        for (size_t j = 0; j < cols; j += 4) {
            four column[4];
            transpose_four(sums + i * WIDTH + j, column);
            for (size_t s = 0; s < 4; s++) {
                float *c = place->c + (j + s) * stride + i;
                if (place->accumulate) column[s] += load_four(c);
                *(four *)(void *)c = column[s];
            }
        }
    }
    for (size_t i = 0; i < place->rows; i++) {
        for (size_t j = i < rows ? cols : 0; j < place->cols; j++) {
            float *c = place->c + j * stride + i;
            *c = (place->accumulate ? *c : 0.0f) + sums[i * WIDTH + j];
        }
    }
}

static inline __attribute__((always_inline)) void tile_of(const float *left, const float *right, size_t depth,
                                                          struct stream *stream, const struct place *place,
                                                          const bool transposed, const int rows) {
    vector sum[ROWS][VECTORS];
    _Alignas(SL_CACHE_LINE) float sums[ROWS * WIDTH];
    const size_t across = transposed ? place->cols : place->rows;
    for (size_t i = 0; i < across; i++) { /* of C */
        __builtin_prefetch(place->c + i * place->stride, 1, 3);
        __builtin_prefetch(place->c + i * place->stride + (transposed ? ROWS : WIDTH) - 1, 1, 3);
    }
    multiply_tile(left, right, depth, stream, sum, rows);
    if (!transposed && place->cols == WIDTH) {
        store_tile(place, sum, rows);
        return;
    }
    store_sums(sum, rows, sums);
    (transposed ? store_transposed : store_narrow)(place, sums);
}

static inline __attribute__((always_inline)) void tile(const float *left, const float *right, size_t depth,
                                                       struct stream *stream, const struct place *place,
                                                       const bool transposed) {
    if (place->rows > 2 * STEP)
        tile_of(left, right, depth, stream, place, transposed, ROWS);
    else if (place->rows > STEP)
        tile_of(left, right, depth, stream, place, transposed, 2 * STEP);
    else
        tile_of(left, right, depth, stream, place, transposed, STEP);
}

/* ---- C = A B and C = A^T B: a block of op(A) stays, and B passes by, WIDTH columns at a time ---- */

struct panel {
    _Alignas(SL_CACHE_LINE) float at[DEPTH * WIDTH];
};

/* Columns that are fewer are copied at once, with zeros beside them. */
static struct stream open_panel(const struct product *p, struct part part, size_t column, size_t tiles, float *to) {
    const size_t cols = smaller(p->n - column, WIDTH), n = p->n;
    const float *b = p->b + part.from * n + column;
    if (cols == WIDTH) {
        for (size_t l = 0; l < smaller(AHEAD, part.depth); l++) {
            __builtin_prefetch(b + l * n, 0, 3);
            __builtin_prefetch(b + l * n + WIDTH - 1, 0, 3);
        }
        return (struct stream){.from = b,
                               .to = to,
                               .step = n,
                               .to_step = WIDTH,
                               .ahead = AHEAD * n,
                               .rows = 1,
                               .left = part.depth,
                               .pace = pace_of(tiles)};
    }
    for (size_t l = 0; l < part.depth; l++) {
        for (size_t j = 0; j < WIDTH; j++) to[l * WIDTH + j] = j < cols ? b[l * n + j] : 0.0f;
    }
    return (struct stream){0};
}

/* C's ROWS rows from ROW on, over a part of the sums. */
static void multiply_block(const struct product *p, struct part part, size_t row, size_t rows, const float *left) {
    struct panel panel[2]; /* what is multiplied, and the next one */
    const size_t tiles = (rows + ROWS - 1) / ROWS;
    struct stream stream = open_panel(p, part, 0, tiles, panel[0].at);
    for (size_t column = 0, which = 0; column < p->n; column += WIDTH, which = !which) {
        const float *bias = part.last && p->bias ? p->bias + column : NULL;
        copy_rest(&stream);
        if (column + WIDTH < p->n) stream = open_panel(p, part, column + WIDTH, tiles, panel[!which].at);
        for (size_t i = 0; i < rows; i += ROWS) {
            const struct place place = {p->c + (row + i) * p->n + column, p->n, smaller(rows - i, ROWS),
                                        smaller(p->n - column, WIDTH),    bias, part.from || p->accumulate};
            tile(left + i * STRIDE, panel[which].at, part.depth, &stream, &place, false);
        }
    }
}

static void copy_block(const struct product *p, struct part part, size_t row, size_t rows, bool transpose_a,
                       float *left) {
    if (transpose_a)
        copy_transposed(p->a + part.from * p->m + row, p->m, part.depth, rows, left, STRIDE);
    else
        for (size_t i = 0; i < rows; i++)
            memcpy(left + i * STRIDE, p->a + (row + i) * p->k + part.from, part.depth * sizeof *left);
    memset(left + rows * STRIDE, 0, (sl_round_up(rows, STEP) - rows) * STRIDE * sizeof *left);
}

static void multiply_blocks(const struct product *p, bool transpose_a) {
    _Alignas(SL_CACHE_LINE) float left[BLOCK * STRIDE];
    const size_t block = part_of(p->m, BLOCK, ROWS);
    for (size_t row = 0; row < p->m; row += block) {
        const size_t rows = smaller(p->m - row, block);
        struct part part = {0};
        for (size_t from = 0; from < p->k; from += part.depth) {
            part = part_from(from, p->k);
            copy_block(p, part, row, rows, transpose_a, left);
            multiply_block(p, part, row, rows, left);
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

/* ---- C = A B^T, as C^T = B A^T: a block of A^T stays, and B passes by, ROWS rows at a time ---- */

struct rows {
    _Alignas(SL_CACHE_LINE) float at[ROWS * STRIDE];
};

static struct stream open_rows(const struct product *p, struct part part, size_t column, size_t panels, float *to) {
    const size_t rows = smaller(p->n - column, ROWS), whole = part.depth / WIDTH * WIDTH, k = p->k;
    const float *b = p->b + column * k + part.from;
    for (size_t i = 0; i < rows; i++) {
        for (size_t l = whole; l < part.depth; l++) to[i * STRIDE + l] = b[i * k + l];
    }
    memset(to + rows * STRIDE, 0, (ROWS - rows) * STRIDE * sizeof *to);
    return (struct stream){.from = b,
                           .to = to,
                           .step = WIDTH,
                           .to_step = WIDTH,
                           .row_step = k - whole,
                           .to_row_step = STRIDE - whole,
                           .ahead = k, /* the next row is asked for */
                           .pieces = whole / WIDTH,
                           .rows = rows,
                           .left = whole / WIDTH,
                           .pace = pace_of(panels * WIDTH / ROWS)};
}

/* C's ROWS rows from ROW on, over a part of the sums. */
static void multiply_block_transposed(const struct product *p, struct part part, size_t row, size_t rows,
                                      const float *right) {
    struct rows left[2]; /* what is multiplied, and the next ones */
    const size_t panels = (rows + WIDTH - 1) / WIDTH;
    struct stream stream = open_rows(p, part, 0, panels, left[0].at);
    for (size_t column = 0, which = 0; column < p->n; column += ROWS, which = !which) {
        copy_rest(&stream);
        if (column + ROWS < p->n) stream = open_rows(p, part, column + ROWS, panels, left[!which].at);
        for (size_t j = 0; j < rows; j += WIDTH) {
            const struct place place = {p->c + (row + j) * p->n + column, p->n, smaller(p->n - column, ROWS),
                                        smaller(rows - j, WIDTH),         NULL, part.from || p->accumulate};
            tile(left[which].at, right + j * part.depth, part.depth, &stream, &place, true);
        }
    }
}

/* A tile's columns are side by side: right [panels][depth][WIDTH]. */
static void copy_block_transposed(const struct product *p, struct part part, size_t row, size_t rows, float *right) {
    for (size_t j = 0; j < rows; j += WIDTH, right += part.depth * WIDTH) {
        const size_t cols = smaller(rows - j, WIDTH);
        if (cols < WIDTH) memset(right, 0, part.depth * WIDTH * sizeof *right);
        copy_transposed(p->a + (row + j) * p->k + part.from, p->k, cols, part.depth, right, WIDTH);
    }
}

static void multiply_transposed(size_t m, size_t n, size_t k, const float *a, const float *b, bool accumulate,
                                float *c) {
    const struct product p = {m, n, k, a, b, NULL, accumulate, c};
    _Alignas(SL_CACHE_LINE) float right[PANELS * WIDTH * DEPTH];
    const size_t block = part_of(m, PANELS * WIDTH, WIDTH);
    for (size_t row = 0; row < m; row += block) {
        const size_t rows = smaller(m - row, block);
        struct part part = {0};
        for (size_t from = 0; from < k; from += part.depth) {
            part = part_from(from, k);
            copy_block_transposed(&p, part, row, rows, right);
            multiply_block_transposed(&p, part, row, rows, right);
        }
    }
}

const struct sl_many_rows SL_MANY_ROWS = {
    .multiply = multiply, .multiply_transposed = multiply_transposed, .multiply_gradient = multiply_gradient};
