/* tile_rows.c - matrix products of bf16 by tiles, for CPUs with AMX_BF16.
 *
 * Tiles 0 to 3 are sums, 4 and 5 are of the left operand, 6 and 7 of the right one. A tile of the left operand has 32
 * terms of 16 rows; a tile of the right one has 16 columns: its row R has the terms 2R and 2R + 1 of each, as pairs. */
#include "layers/kernels/gemm/tiles/tile_rows.h"

#include <immintrin.h>
#include <string.h>

#include "layers/kernels/gemm/tiles/tile_copies_internal.h"
#include "spmd/base/numbers/bf16.h"

enum {
    WIDTH = 2 * SIDE, /* rows, and columns, of a square block of C */
    AHEAD = 2,        /* steps that are copied before they are multiplied */
    RING = 4,         /* steps that stay copied if a panel is read once; a power of two */
    STEPS = 16,       /* most steps of a panel that is read more often, also a power of two */
    BLOCK = 256,      /* most rows that are multiplied by a copied panel */
    CHUNK = 512,      /* columns by which all rows are multiplied before the next ones */
};

/* gcc does not know that loading a tile, or the tiles' configuration, reads memory. */
#define WRITTEN() __asm__ volatile("" ::: "memory")

/* The instruction ldtilecfg reads this layout. */
struct shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct shapes) == 64, "ldtilecfg reads 64 bytes");

/* ---- blocks of C ---- */

/* How a block's tiles of sums lie. */
enum form {
    SQUARE, /* 32 rows x 32 columns: 0 1, then 2 3 */
    FLAT,   /* 16 rows x 32 columns: 0 1 */
    WIDE,   /* 16 rows x 64 columns: 0 1 2 3 */
};

/* A block of C: at most so many rows and columns as its form has; terms [from, from + depth). */
struct block {
    size_t row, column, rows, columns, from, depth;
};

/* The block's rows of the left operand. */
struct left {
    const uint16_t *at;     /* SIDE rows at their first TERMS terms */
    size_t row, tile, step; /* from row to row, to the next SIDE rows, to the next terms */
};

/* The block's columns of copied steps, and the place of its first step. */
struct right {
    const uint16_t *at;
    size_t place, ring;
};

/* Configures tiles for blocks of ROWS rows. Returns ROWS. */
static size_t configure(size_t rows, bool wide) {
    enum { ALL = 8, PALETTE = 1 };
    struct shapes shapes = {.palette = PALETTE};
    const size_t first = smaller(rows, SIDE), second = wide || rows == first ? first : rows - first;
    const size_t of[ALL] = {first, first, second, second, first, second, SIDE, SIDE};
    for (int i = 0; i < ALL; i++) {
        shapes.rows[i] = (uint8_t)of[i];
        shapes.row_bytes[i] = TERMS * sizeof(uint16_t);
    }
    WRITTEN();
    _tile_loadconfig(&shapes);
    return rows;
}

static SL_TILE_INLINE void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static SL_TILE_INLINE void load_sums(const float *from, size_t row, const enum form form) {
    const size_t bytes = row * sizeof *from, second = form == SQUARE ? SIDE * row : WIDTH;
    _tile_loadd(0, from, bytes);
    _tile_loadd(1, from + SIDE, bytes);
    if (form == FLAT) return;
    _tile_loadd(2, from + second, bytes);
    _tile_loadd(3, from + second + SIDE, bytes);
}

static SL_TILE_INLINE void store_sums(float *to, size_t row, const enum form form) {
    const size_t bytes = row * sizeof *to, second = form == SQUARE ? SIDE * row : WIDTH;
    _tile_stored(0, to, bytes);
    _tile_stored(1, to + SIDE, bytes);
    if (form == FLAT) return;
    _tile_stored(2, to + second, bytes);
    _tile_stored(3, to + second + SIDE, bytes);
}

static SL_TILE_INLINE void add_step(const uint16_t *left, size_t row, size_t tile, const uint16_t *right,
                                    const enum form form) {
    const size_t bytes = row * sizeof *left, next = TERMS * sizeof *right;
    _tile_loadd(6, right, next);
    _tile_loadd(4, left, bytes);
    _tile_loadd(7, right + TILE, next);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (form == SQUARE) {
        _tile_loadd(5, left + tile, bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    } else if (form == WIDE) {
        _tile_loadd(6, right + 2 * TILE, next);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(7, right + 3 * TILE, next);
        _tile_dpbf16ps(3, 4, 7);
    }
}

/* Brings lines of C that will be written. */
static SL_TILE_INLINE void fetch_sums(const float *c, size_t n, size_t rows, const enum form form) {
    for (size_t i = 0; i < rows; i++, c += n) {
        for (int j = 0; j < (form == WIDE ? 4 : 2); j++) __builtin_prefetch(c + j * SIDE, 1, 3);
    }
}

/* to[rows][TERMS] = ROWS rows of less than TERMS terms, and zeros. */
static void fill_rows(const uint16_t *from, size_t row, size_t rows, size_t terms, uint16_t *to) {
    memset(to, 0, rows * TERMS * sizeof *to);
    for (size_t i = 0; i < rows; i++) memcpy(to + i * TERMS, from + i * row, terms * sizeof *to);
}

/* Adds all terms; for each step, copies the STREAM's next one, unless it is NULL. */
static SL_TILE_INLINE void add_terms(const struct sl_tile_product *p, const struct block *block, struct left left,
                                     struct right right, struct stream *stream, const enum form form) {
    const size_t steps = steps_of(block->depth), whole = left.step == TERMS ? block->depth / TERMS : steps;
    const size_t each = (block->rows + steps - 1) / steps;
    const float *c = (const float *)p->c.rows.at + block->row * p->n + block->column;
    uint16_t rest[WIDTH * TERMS];
    for (size_t i = 0; i < steps; i++, left.at += left.step) {
        const uint16_t *step = right.at + ((right.place + i) & (right.ring - 1)) * STEP;
        if (i < whole) {
            add_step(left.at, left.row, left.tile, step, form);
        } else {
            fill_rows(left.at, left.row, block->rows, block->depth % TERMS, rest);
            WRITTEN();
            add_step(rest, TERMS, TILE, step, form);
        }
        if (i * each < block->rows) fetch_sums(c + i * each * p->n, p->n, smaller(each, block->rows - i * each), form);
        if (stream) copy_steps(stream, 1);
        WRITTEN();
    }
}

/* C's elements of BLOCK = SUMS [rows, SL_TILE_COLUMNS]; if they are complete (LAST), plus the bias, and rounded. */
static void settle(const struct sl_tile_product *p, const struct block *block, bool last, const float *sums) {
    for (size_t i = 0; i < block->rows; i++, sums += SL_TILE_COLUMNS) {
        const struct sl_out out = sl_out_from(p->c, (block->row + i) * p->n + block->column);
        float *c = out.rows.at;
        for (size_t j = 0; j < block->columns; j++) c[j] = sums[j];
        for (size_t j = 0; last && p->bias && j < block->columns; j++) c[j] += p->bias[block->column + j];
        if (last && out.rounds && out.copy.at)
            for (size_t j = 0; j < block->columns; j++) sl_settle(c, out.copy.at, j);
        else if (last && out.rounds)
            for (size_t j = 0; j < block->columns; j++) sl_settle(c, NULL, j);
    }
}

static SL_TILE_INLINE void multiply_block(const struct sl_tile_product *p, const struct block *block,
                                          const struct left *left, struct right right, struct stream *stream,
                                          const enum form form) {
    float sums[WIDTH * SL_TILE_COLUMNS];
    float *c = (float *)p->c.rows.at + block->row * p->n + block->column;
    const bool last = block->from + block->depth == p->k;
    const bool whole = block->columns == (form == WIDE ? SL_TILE_COLUMNS : WIDTH);
    WRITTEN();
    if (!p->accumulate && block->from == 0) {
        zero_sums();
    } else if (whole) {
        load_sums(c, p->n, form);
    } else {
        for (size_t i = 0; i < block->rows; i++)
            memcpy(sums + i * SL_TILE_COLUMNS, c + i * p->n, block->columns * sizeof *c);
        WRITTEN();
        load_sums(sums, SL_TILE_COLUMNS, form);
    }
    add_terms(p, block, *left, right, stream, form);
    if (whole && !(last && (p->bias || p->c.rounds))) {
        store_sums(c, p->n, form);
    } else {
        store_sums(sums, SL_TILE_COLUMNS, form);
        settle(p, block, last, sums);
    }
}

/* CONFIGURED: rows for which the tiles are configured. */
static void multiply_square(const struct sl_tile_product *p, const struct block *block, const struct left *left,
                            struct right right, struct stream *stream, size_t *configured) {
    if (*configured != block->rows) *configured = configure(block->rows, false);
    if (block->rows > SIDE && stream)
        multiply_block(p, block, left, right, stream, SQUARE);
    else if (block->rows > SIDE)
        multiply_block(p, block, left, right, NULL, SQUARE);
    else
        multiply_block(p, block, left, right, stream, FLAT);
}

/* ---- A as it lies ---- */

/* Rows [row, row + rows) of A, terms [from, from + depth), columns [first, end) of B. */
struct task {
    const struct source *b;
    size_t row, rows, first, end, from, depth;
};

static struct left left_of(const struct sl_tile_product *p, const struct task *t, size_t row) {
    return (struct left){p->a + row * p->k + t->from, p->k, SIDE * p->k, TERMS};
}

/* At most SIDE rows. */
static void multiply_wide(const struct sl_tile_product *p, const struct task *t) {
    _Alignas(SL_CACHE_LINE) uint16_t steps[RING * STEP];
    const struct left left = left_of(p, t, t->row);
    struct stream stream = {t->b, t->first, t->end, t->from, t->depth, 0, 0, RING, steps};
    struct right right = {steps, 0, RING};
    configure(t->rows, true);
    copy_steps(&stream, AHEAD);
    for (size_t column = t->first; column < t->end; column += SL_TILE_COLUMNS, right.place += steps_of(t->depth)) {
        const struct block block = {t->row,  column,  t->rows, smaller(t->end - column, SL_TILE_COLUMNS),
                                    t->from, t->depth};
        multiply_block(p, &block, &left, right, &stream, WIDE);
    }
}

/* A panel's first block copies it. */
static void multiply_panel(const struct sl_tile_product *p, const struct task *t, size_t column, size_t *configured) {
    _Alignas(SL_CACHE_LINE) uint16_t steps[STEPS * STEP];
    const size_t end = smaller(t->end, column + SL_TILE_COLUMNS);
    struct stream stream = {t->b, column, end, t->from, t->depth, 0, 0, STEPS, steps};
    copy_steps(&stream, AHEAD);
    for (size_t row = 0; row < t->rows; row += WIDTH) {
        const struct left left = left_of(p, t, t->row + row);
        for (size_t i = 0; column + i < end; i += WIDTH) {
            const struct block block = {
                t->row + row, column + i, smaller(t->rows - row, WIDTH), smaller(end - column - i, WIDTH),
                t->from,      t->depth};
            const struct right right = {steps + i / SIDE * TILE, 0, STEPS};
            multiply_square(p, &block, &left, right, row + i ? NULL : &stream, configured);
        }
    }
}

static void multiply_panels(const struct sl_tile_product *p, const struct task *t) {
    size_t configured = 0;
    for (size_t column = t->first; column < t->end; column += SL_TILE_COLUMNS)
        multiply_panel(p, t, column, &configured);
}

static void multiply_lying(const struct sl_tile_product *p, const struct source *b) {
    const bool wide = p->m <= SIDE;
    const size_t most = wide ? p->k : STEPS * TERMS;
    for (size_t column = p->first; column < p->end; column += CHUNK) {
        for (size_t row = 0; row < p->m; row += BLOCK) {
            for (size_t from = 0; from < p->k; from += most) {
                const struct task task = {b,
                                          row,
                                          smaller(p->m - row, BLOCK),
                                          column,
                                          smaller(p->end, column + CHUNK),
                                          from,
                                          smaller(p->k - from, most)};
                (wide ? multiply_wide : multiply_panels)(p, &task);
            }
        }
    }
    _tile_release();
}

static void multiply(const struct sl_tile_product *p) {
    const struct source b = {p->b, APART, p->n};
    multiply_lying(p, &b);
}

static void multiply_transposed(const struct sl_tile_product *p) {
    const struct source b = {p->b, ALONG, p->k};
    multiply_lying(p, &b);
}

/* ---- columns of A ---- */

/* to[step][4][16][32] = SL_TILE_COLUMNS columns of A [k, m] from COLUMN on, or those that are left. */
static void turn_columns(const struct sl_tile_product *p, size_t column, size_t from, size_t depth, uint16_t *to) {
    _Alignas(SL_CACHE_LINE) uint16_t pairs[STEP];
    const struct source a = {p->a, APART, p->m};
    struct stream stream = {&a, column, smaller(column + SL_TILE_COLUMNS, p->m), from, depth, 0, 0, 1, pairs};
    for (size_t step = 0; step < steps_of(depth); step++, to += STEP) {
        copy_steps(&stream, 1);
        for (size_t i = 0; i < STEP; i += TILE) turn_pairs(pairs + i, TERMS, to + i);
    }
}

/* Columns [first, end) of B, at most CHUNK, and terms [from, from + depth), and their copy. */
struct chunk {
    size_t first, end, from, depth;
    uint16_t *panels; /* [CHUNK / SL_TILE_COLUMNS][STEPS * STEP] */
};

static struct right right_of(const struct chunk *chunk, size_t column) {
    const size_t panel = (column - chunk->first) / SL_TILE_COLUMNS,
                 in_panel = (column - chunk->first) % SL_TILE_COLUMNS;
    return (struct right){chunk->panels + panel * STEPS * STEP + in_panel / SIDE * TILE, 0, STEPS};
}

/* Writes rows of C from end to end. */
static void multiply_chunk(const struct sl_tile_product *p, const struct chunk *chunk, size_t *configured) {
    _Alignas(SL_CACHE_LINE) uint16_t turned[STEPS * STEP];
    for (size_t row = 0; row < p->m; row += WIDTH) {
        const size_t half = row % SL_TILE_COLUMNS;
        if (half == 0) turn_columns(p, row, chunk->from, chunk->depth, turned);
        const struct left left = {turned + half / SIDE * TILE, TERMS, TILE, STEP};
        for (size_t column = chunk->first; column < chunk->end; column += WIDTH) {
            const struct block block = {
                row,         column,      smaller(p->m - row, WIDTH), smaller(chunk->end - column, WIDTH),
                chunk->from, chunk->depth};
            multiply_square(p, &block, &left, right_of(chunk, column), NULL, configured);
        }
    }
}

static void copy_chunk(const struct sl_tile_product *p, const struct chunk *chunk) {
    const struct source b = {p->b, APART, p->n};
    for (size_t column = chunk->first; column < chunk->end; column += SL_TILE_COLUMNS) {
        uint16_t *to = chunk->panels + (column - chunk->first) / SL_TILE_COLUMNS * STEPS * STEP;
        const size_t end = smaller(chunk->end, column + SL_TILE_COLUMNS);
        struct stream stream = {&b, column, end, chunk->from, chunk->depth, 0, 0, STEPS, to};
        copy_steps(&stream, STEPS);
    }
}

static void multiply_gradient(const struct sl_tile_product *p) {
    _Alignas(SL_CACHE_LINE) uint16_t panels[CHUNK / SL_TILE_COLUMNS * STEPS * STEP];
    size_t configured = 0;
    for (size_t from = 0; from < p->k; from += STEPS * TERMS) {
        for (size_t first = p->first; first < p->end; first += CHUNK) {
            const struct chunk chunk = {first, smaller(p->end, first + CHUNK), from,
                                        smaller(p->k - from, STEPS * TERMS), panels};
            copy_chunk(p, &chunk);
            multiply_chunk(p, &chunk, &configured);
        }
    }
    _tile_release();
}

const struct sl_tile_rows sl_tile_rows_amx = {
    .multiply = multiply, .multiply_transposed = multiply_transposed, .multiply_gradient = multiply_gradient};
