/* many_rows.c - matrix products with many rows, built twice per CPU level: for floats, and to widen bf16.
 *
 * The build defines SL_MANY_ROWS_TABLE, the table's struct, and SL_MANY_ROWS, its name, and lets the compiler fuse
 * multiplications and additions. Every element of C is the sum of parts, which depend on k alone; within a part, terms
 * are added one by one. So a row's bits depend neither on the other rows nor on the sizes of tiles and blocks. */
#include "layers/kernels/gemm/rows/many_rows.h"
#include "layers/kernels/loops/lanes_internal.h"
#include "layers/kernels/gemm/rows/product_internal.h"
#include "spmd/base/memory.h"

#include <string.h>

/* A tile of C is the product of rows of op(A) and columns of op(B), and its sums fill the registers. A block of op(A)
 * stays in the second-level cache. op(B) is streamed, a tile's width at a time. */
enum {
    ROWS = LANES == 16 ? 12 : 6, /* of a tile */
    STEP = ROWS / 3,             /* tiles at the edge have a multiple of so many rows */
    VECTORS = 2,                 /* of columns of a tile */
    WIDTH = VECTORS * LANES,
    DEPTH = 512,       /* most terms of a part */
    BLOCK = 22 * ROWS, /* most rows of a block */
    SPACE = 16,        /* gap after a copied row or tile, so that the next one falls into other sets of the caches */
    STRIDE = DEPTH + SPACE, /* between copied rows */
    FAR = 1024,   /* rows of A that are a multiple of this apart fall into few sets of a cache, and are copied: */
    OFTEN = 1024, /* if C has so many columns; else, if they are a multiple of 2 * FAR apart */
    AHEAD = 8,    /* terms of prefetch distance for the copy */
    LINE = 16,    /* floats of a cache line */
    TURNED = 4,   /* terms that are transposed at once */
    PIECES = VECTORS * LINE / TURNED, /* pieces of TURNED terms per line of each row */
};

/* Cuts ALL into parts of at most MOST, and returns their size, a multiple of UNIT; the last part may be smaller. */
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

/* to[c][r] = from[r][c] for WIDTH rows and less than a line of each; STRIDE is FROM's. */
static void copy_transposed(const weight *from, size_t stride, size_t cols, float *to) {
    for (size_t r = 0; r < WIDTH; r += LANES) {
        float rows[LANES * LINE];
        size_t c = 0;
        for (size_t i = 0; i < LANES; i++) copy_values(from + (r + i) * stride, cols, rows + i * LINE);
        for (; c + TURNED <= cols; c += TURNED) {
            vector columns[TURNED];
            load_columns(rows + c, LINE, columns);
            for (size_t i = 0; i < TURNED; i++) store(to + (c + i) * WIDTH + r, columns[i]);
        }
        for (; c < cols; c++) {
            for (size_t i = 0; i < LANES; i++) to[c * WIDTH + r + i] = rows[i * LINE + c];
        }
    }
}

/* ---- the left operand: a block of op(A), in place or copied ---- */

/* Element l of row i is at[i * row + l * term]. */
struct left {
    const float *at;
    size_t row, term; /* one of them is 1 */
    size_t tile;      /* from a tile's first row to the next tile's */
};

struct copy {
    _Alignas(SL_CACHE_LINE) float at[BLOCK * STRIDE];
};

/* to[i * STRIDE + l] = element l of row i of A, then rows of zeros to fill a tile. */
static void copy_rows(const float *a, size_t k, size_t rows, size_t depth, float *to) {
    for (size_t i = 0; i < rows; i++) memcpy(to + i * STRIDE, a + i * k, depth * sizeof *to);
    memset(to + rows * STRIDE, 0, (sl_round_up(rows, STEP) - rows) * STRIDE * sizeof *to);
}

/* to[tile][depth][ROWS] = columns of A, then zeros to fill a tile. */
static void copy_terms(const weight *a, size_t m, size_t rows, size_t depth, float *to) {
    const size_t whole = rows / ROWS * ROWS, tile = depth * ROWS + SPACE;
    for (size_t l = 0; l < depth; l++, a += m, to += ROWS) {
        float *at = to;
        for (size_t i = 0; i < whole; i += ROWS, at += tile) copy_values(a + i, ROWS, at);
        if (whole == rows) continue;
        memset(at, 0, ROWS * sizeof *at);
        copy_values(a + whole, rows - whole, at);
    }
}

/* ---- the stream of B: the next tile's width is copied while tiles are multiplied ---- */

/* One line of each of WIDTH rows of B, side by side. */
struct lines {
    _Alignas(SL_CACHE_LINE) float at[WIDTH * LINE];
};

/* A copy in progress. A piece is WIDTH floats of a term or, for a transposed B, TURNED floats of LANES rows. */
struct stream {
    const weight *from;
    float *to;
    size_t row;          /* from a row of B to the next */
    size_t left;         /* remaining pieces */
    size_t pace;         /* terms that are multiplied between two pieces */
    struct lines *lines; /* [2], for a transposed B: the lines being transposed, and the next line of each row */
};

static inline __attribute__((always_inline)) void copy_term(struct stream *stream) {
    SL_UNROLL
    for (int v = 0; v < VECTORS; v++) {
        __builtin_prefetch(stream->from + AHEAD * stream->row + v * LANES, 0, 3);
        store(stream->to + v * LANES, load_weights(stream->from + v * LANES));
    }
    stream->from += stream->row;
    stream->to += WIDTH;
}

static inline __attribute__((always_inline)) void take_line(const weight *line, size_t row, struct lines *lines) {
    SL_UNROLL
    for (int i = 0; i < LINE; i += LANES) store(lines->at + row * LINE + i, load_weights(line + i));
}

/* Rows may be so far apart that few sets of a cache hold their lines: so each line is read once, as a whole. Each piece
 * reads the next line of some rows, and prefetches the line after it. */
static inline __attribute__((always_inline)) void turn_terms(struct stream *stream) {
    const size_t piece = PIECES - 1 - (stream->left - 1) % PIECES, which = (stream->left - 1) / PIECES % 2;
    const size_t group = piece / (LINE / TURNED), term = piece % (LINE / TURNED) * TURNED;
    vector columns[TURNED];
    if (stream->left > PIECES) {
        SL_UNROLL
        for (size_t i = 0; i < WIDTH / PIECES; i++) {
            const size_t row = piece * (WIDTH / PIECES) + i;
            const weight *line = stream->from + row * stream->row;
            __builtin_prefetch(line + 2 * LINE, 0, 2);
            take_line(line, row, &stream->lines[!which]);
        }
    }
    load_columns(stream->lines[which].at + group * LANES * LINE + term, LINE, columns);
    SL_UNROLL
    for (int i = 0; i < TURNED; i++) store(stream->to + (term + i) * WIDTH + group * LANES, columns[i]);
    if (piece < PIECES - 1) return;
    stream->from += LINE;
    stream->to += LINE * WIDTH;
}

static inline __attribute__((always_inline)) void copy_piece(struct stream *stream, const bool turns) {
    if (turns)
        turn_terms(stream);
    else
        copy_term(stream);
}

static inline void copy_rest(struct stream *stream, const bool turns) {
    for (; stream->left; stream->left--) copy_piece(stream, turns);
}

/* ---- tiles ---- */

/* Destination of a tile's sums: the rows and columns of the tile that are inside C. */
struct place {
    float *c;
    size_t stride, rows, cols;
    const float *bias; /* or NULL */
    bool accumulate;
    const float *next; /* next tile of C */
};

/* Read positions of a tile's rows of op(A). Every third row has a pointer: addresses relative to it reach the two rows
 * after it and a few terms. So there is one addition per pointer and run of terms, and multiplications use most of the
 * CPU's units. */
enum { THIRD = 3, POINTERS = ROWS / THIRD, RUN = 4 };
struct cursor {
    const float *at[POINTERS];
};

static inline __attribute__((always_inline)) struct cursor cursor_at(struct left left) {
    struct cursor cursor;
    SL_UNROLL
    for (int i = 0; i < POINTERS; i++) cursor.at[i] = left.at + (size_t)(THIRD * i) * left.row;
    return cursor;
}

/* Adds the next TERMS terms. */
static inline __attribute__((always_inline)) void add_run(struct cursor *cursor, struct left left, const float **right,
                                                          vector sum[ROWS][VECTORS], const int rows, const int terms) {
    SL_UNROLL
    for (int l = 0; l < terms; l++, *right += WIDTH) {
        vector w[VECTORS];
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) w[v] = load(*right + v * LANES);
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            const vector x = spread(cursor->at[i / THIRD][(size_t)(i % THIRD) * left.row + (size_t)l * left.term]);
            SL_UNROLL
            for (int v = 0; v < VECTORS; v++) sum[i][v] += x * w[v];
        }
    }
    SL_UNROLL
    for (int i = 0; i < POINTERS; i++) {
        cursor->at[i] += (size_t)terms * left.term;
        __asm__("" : "+r"(cursor->at[i])); /* otherwise the compiler derives all pointers from one by additions */
    }
}

static inline __attribute__((always_inline)) void add_terms(struct cursor *cursor, struct left left,
                                                            const float **right, vector sum[ROWS][VECTORS],
                                                            const int rows, size_t terms) {
    for (; terms >= RUN; terms -= RUN) add_run(cursor, left, right, sum, rows, RUN);
    for (; terms; terms--) add_run(cursor, left, right, sum, rows, 1);
}

/* Prefetches some rows of a tile of C. */
static inline __attribute__((always_inline)) void ask_for(const float *c, size_t stride, const int rows) {
    SL_UNROLL
    for (int i = 0; i < rows; i++, c += stride) {
        __builtin_prefetch(c, 1, 3);
        __builtin_prefetch(c + WIDTH - 1, 1, 3);
    }
}

/* Every PACE terms it copies a piece of the stream, and prefetches rows of the next tile of C. All prefetches at once
 * would delay the operands. */
static inline __attribute__((always_inline)) void multiply_tile(struct left left, const float *right, size_t depth,
                                                                struct stream *open, const struct place *place,
                                                                vector sum[ROWS][VECTORS], const int rows,
                                                                const bool turns) {
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) sum[i][v] = (vector){0};
    }
    struct cursor cursor = cursor_at(left);
    struct stream stream = *open;
    const float *next = place->next;
    const int asked = turns ? TURNED / VECTORS : 1;
    int unasked = ROWS;
    for (; depth >= stream.pace && (stream.left || unasked > 0); depth -= stream.pace) {
        if (stream.left) {
            copy_piece(&stream, turns);
            stream.left--;
        }
        if (unasked > 0) {
            ask_for(next, place->stride, asked);
            next += (size_t)asked * place->stride;
            unasked -= asked;
        }
        add_terms(&cursor, left, &right, sum, rows, stream.pace);
    }
    *open = stream;
    add_terms(&cursor, left, &right, sum, rows, depth);
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

/* Stores a tile at the right edge of C. */
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

static inline __attribute__((always_inline)) void tile_of(struct left left, const float *right, size_t depth,
                                                          struct stream *stream, const struct place *place,
                                                          const bool turns, const int rows) {
    vector sum[ROWS][VECTORS];
    _Alignas(SL_CACHE_LINE) float sums[ROWS * WIDTH];
    multiply_tile(left, right, depth, stream, place, sum, rows, turns);
    if (place->cols == WIDTH) {
        store_tile(place, sum, rows);
        return;
    }
    store_sums(sum, rows, sums);
    store_narrow(place, sums);
}

static inline __attribute__((always_inline)) void tile(struct left left, const float *right, size_t depth,
                                                       struct stream *stream, const struct place *place,
                                                       const bool turns) {
    if (place->rows > 2 * STEP)
        tile_of(left, right, depth, stream, place, turns, ROWS);
    else if (place->rows > STEP)
        tile_of(left, right, depth, stream, place, turns, 2 * STEP);
    else
        tile_of(left, right, depth, stream, place, turns, STEP);
}

/* ---- rounding ---- */

static inline void settle_row(size_t n, float *restrict c, uint16_t *restrict stored) {
    if (stored) {
        for (size_t j = 0; j < n; j++) sl_settle(c, stored, j);
        return;
    }
    for (size_t j = 0; j < n; j++) sl_settle(c, NULL, j);
}

/* Rounds a complete tile, while it is in the first-level cache. It begins at element FIRST of C. */
static inline void settle_tile(const struct place *place, uint16_t *copy, size_t first) {
    for (size_t i = 0; i < place->rows; i++)
        settle_row(place->cols, place->c + i * place->stride, copy ? copy + first + i * place->stride : NULL);
}

static void settle(size_t m, size_t n, const float *bias, struct sl_out left) {
    float *c = left.rows.at;
    uint16_t *copy = left.copy.at;
    for (size_t i = 0; i < m; i++, c += n) {
        for (size_t j = 0; bias && j < n; j++) c[j] += bias[j];
        settle_row(n, c, copy ? copy + i * n : NULL);
    }
}

/* ---- blocks ---- */

struct panel {
    _Alignas(SL_CACHE_LINE) float at[DEPTH * WIDTH];
};

/* Returns the pace. With it the copy ends a little before the tiles end, and a tile takes long enough to prefetch all
 * rows of the next tile. */
static inline size_t pace_of(size_t depth, size_t tiles, const bool turns) {
    const size_t terms = turns ? TURNED / VECTORS : 1, ahead = tiles < 2 ? 1 : (tiles - 1) * terms;
    return depth < ROWS ? 1 : smaller(ahead, depth * terms / ROWS);
}

static inline struct stream open_terms(const struct product *p, struct part part, size_t column, size_t pace,
                                       float *to) {
    const weight *b = p->b + part.from * p->n + column;
    for (size_t l = 0; l < smaller(AHEAD, part.depth); l++) {
        __builtin_prefetch(b + l * p->n, 0, 3);
        __builtin_prefetch(b + l * p->n + WIDTH - 1, 0, 3);
    }
    return (struct stream){.from = b, .to = to, .row = p->n, .left = part.depth, .pace = pace};
}

/* Opens a stream of a B that is stored [n, k]. */
static inline struct stream open_rows(const struct product *p, struct part part, size_t column, size_t pace,
                                      struct lines *lines, float *to) {
    const weight *b = p->b + column * p->k + part.from;
    const size_t count = part.depth / LINE, whole = count * LINE;
    for (size_t j = 0; j < WIDTH; j++) {
        __builtin_prefetch(b + j * p->k, 0, 3);
        __builtin_prefetch(b + j * p->k + LINE, 0, 2);
        __builtin_prefetch(b + j * p->k + 2 * LINE, 0, 2);
    }
    copy_transposed(b + whole, p->k, part.depth - whole, to + whole * WIDTH);
    for (size_t j = 0; count && j < WIDTH; j++) take_line(b + j * p->k, j, &lines[(count - 1) % 2]);
    return (struct stream){
        .from = b + LINE, .to = to, .row = p->k, .left = count * PIECES, .pace = pace, .lines = lines};
}

/* Opens a stream of a panel. If it has fewer than WIDTH columns, copies it at once, padded with zeros. */
static inline struct stream open_panel(const struct product *p, struct part part, size_t column, size_t tiles,
                                       struct lines *lines, float *to, const bool turns) {
    const size_t cols = smaller(p->n - column, WIDTH), pace = pace_of(part.depth, tiles, turns);
    if (cols == WIDTH && turns) return open_rows(p, part, column, pace, lines, to);
    if (cols == WIDTH) return open_terms(p, part, column, pace, to);
    for (size_t l = 0; l < part.depth; l++) {
        for (size_t j = 0; j < WIDTH; j++) {
            const size_t term = part.from + l, at = turns ? (column + j) * p->k + term : term * p->n + column + j;
            to[l * WIDTH + j] = j < cols ? value_of(p->b[at]) : 0.0f;
        }
    }
    return (struct stream){.pace = pace};
}

/* A transposed A is stored as B is. */
static inline __attribute__((always_inline)) struct left open_block(const struct product *p, struct part part,
                                                                    size_t row, size_t rows, struct copy *copy,
                                                                    const bool transpose_a) {
    if (transpose_a) {
        const weight *terms = (const void *)p->a;
        copy_terms(terms + part.from * p->m + row, p->m, rows, part.depth, copy->at);
        return (struct left){copy->at, 1, ROWS, part.depth * ROWS + SPACE};
    }
    const float *a = p->a + row * p->k + part.from;
    if (p->k % (p->n < OFTEN ? 2 * FAR : FAR)) return (struct left){a, p->k, 1, ROWS * p->k};
    copy_rows(a, p->k, rows, part.depth, copy->at);
    return (struct left){copy->at, STRIDE, 1, ROWS * STRIDE};
}

/* Returns the block's last tile, copied if it would be read beyond A's end. */
static inline struct left open_edge(const struct left *block, size_t tiles, size_t rows, size_t depth,
                                    struct copy *copy) {
    const float *at = block->at + (tiles - 1) * block->tile;
    if (block->at == copy->at || rows % STEP == 0) return (struct left){at, block->row, block->term, 0};
    copy_rows(at, block->row, rows - (tiles - 1) * ROWS, depth, copy->at);
    return (struct left){copy->at, STRIDE, 1, 0};
}

/* Computes ROWS rows of C from ROW on, over a part of the sums. */
static inline __attribute__((always_inline)) void multiply_block(const struct product *p, struct part part, size_t row,
                                                                 size_t rows, const bool transpose_a,
                                                                 const bool transpose_b, bool rounds,
                                                                 uint16_t *copied) {
    struct panel panel[2]; /* the current panel, and the next one */
    struct copy copy;
    struct lines lines[2];
    const size_t tiles = (rows + ROWS - 1) / ROWS, n = p->n;
    const struct left block = open_block(p, part, row, rows, &copy, transpose_a);
    const struct left edge = open_edge(&block, tiles, rows, part.depth, &copy);
    struct stream stream = open_panel(p, part, 0, tiles, lines, panel[0].at, transpose_b);
    for (size_t column = 0, which = 0; column < n; column += WIDTH, which = !which) {
        float *c = p->c + row * n + column, *above = c + WIDTH;
        copy_rest(&stream, transpose_b);
        if (column + WIDTH < n)
            stream = open_panel(p, part, column + WIDTH, tiles, lines, panel[!which].at, transpose_b);
        for (size_t i = 0; i < tiles; i++, c += ROWS * n) {
            struct left left = i + 1 < tiles ? block : edge;
            if (i + 1 < tiles) left.at += i * block.tile;
            if (transpose_a) left.row = 1, left.term = ROWS; /* constants are faster */
            if (!transpose_a) left.term = 1;
            const struct place place = {.c = c,
                                        .stride = n,
                                        .rows = smaller(rows - i * ROWS, ROWS),
                                        .cols = smaller(n - column, WIDTH),
                                        .bias = part.last && p->bias ? p->bias + column : NULL,
                                        .accumulate = part.from || p->accumulate,
                                        .next = i + 1 < tiles ? c + ROWS * n : above};
            tile(left, panel[which].at, part.depth, &stream, &place, transpose_b);
            if (rounds && part.last) settle_tile(&place, copied, (size_t)(c - p->c));
        }
    }
}

static inline __attribute__((always_inline)) void multiply_blocks(const struct product *p, const bool transpose_a,
                                                                  const bool transpose_b, bool rounds,
                                                                  uint16_t *copied) {
    const size_t block = part_of(p->m, BLOCK, ROWS);
    for (size_t row = 0; row < p->m; row += block) {
        const size_t rows = smaller(p->m - row, block);
        struct part part = {0};
        for (size_t from = 0; from < p->k; from += part.depth) {
            part = part_from(from, p->k);
            multiply_block(p, part, row, rows, transpose_a, transpose_b, rounds, copied);
        }
    }
}

static void multiply(size_t m, size_t n, size_t k, const float *a, const weight *b, const float *bias, bool accumulate,
                     struct sl_out c) {
    const struct product p = {m, n, k, a, b, bias, accumulate, c.rows.at};
    multiply_blocks(&p, false, false, c.rounds, c.copy.at);
}

static void multiply_transposed(size_t m, size_t n, size_t k, const float *a, const weight *b, bool accumulate,
                                float *c) {
    const struct product p = {m, n, k, a, b, NULL, accumulate, c};
    multiply_blocks(&p, false, true, false, NULL);
}

static void multiply_gradient(size_t m, size_t n, size_t k, const weight *a, const weight *b, bool accumulate,
                              float *c) {
    const struct product p = {m, n, k, (const void *)a, b, NULL, accumulate, c};
    multiply_blocks(&p, true, false, false, NULL);
}

const struct SL_MANY_ROWS_TABLE SL_MANY_ROWS = {.multiply = multiply,
                                                .settle = settle,
                                                .multiply_transposed = multiply_transposed,
                                                .multiply_gradient = multiply_gradient};
