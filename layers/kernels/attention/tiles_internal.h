/* tiles_internal.h - small matrix products, in tiles whose sums stay in registers, for kernels that are built once per
 * CPU level or for devices.
 *
 * On NVIDIA GPUs the threads of a team share the tiles. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_TILES_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_TILES_INTERNAL_H

#include "layers/kernels/loops/smaller_internal.h"
#include "layers/kernels/loops/vectors_internal.h"
#include "spmd/base/memory.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

/* DOWN: rows of a tile, PAIR: its vectors of columns: their sums leave registers for a row of b. A tile of one vector
 * has TALL rows. REST: most rows and depth of a product whose columns do not fill whole vectors. ASKS: 1 if tiles
 * prefetch. TILES: a function with the code of all tiles, so that the code stays small. SETTLE: forces a pointer into a
 * register from here on. SHARED_PRODUCT, PRODUCT: on GPUs tiles read a copy in the team's memory, because a parallel
 * loop names it; a product whose address threads share would be in a separate memory. */
#if defined(SL_DEVICE_CUDA)
#define EACH_TILE(...) SL_PRAGMA(omp parallel for __VA_ARGS__)
#define TILES SL_INLINE
#define SETTLE(pointer) (void)(pointer)
#define SHARED_PRODUCT(p) const struct product shared = *(p)
#define PRODUCT(p) (&shared + nothing())
enum { DOWN = 4, TALL = 4, PAIR = 1, REST = 32 };
typedef uint32_t tile_count; /* GPUs divide 32-bit numbers with a few instructions, larger ones with many */
enum { ASKS = 0 };

/* Returns 0, unknown to compilers: added to a stride in a loop's body, it prevents them from computing values of that
 * stride before the loop and all enclosing loops. Such values would take registers throughout. */
SL_INLINE uint32_t nothing(void) {
    uint32_t zero = 0;
    __asm__ volatile("" : "+r"(zero));
    return zero;
}

SL_INLINE void load_columns(const float *x, size_t row, vector to[4]) {
    (void)row;
    for (int i = 0; i < 4; i++) to[i] = load(x + i);
}
#else
#include "layers/kernels/loops/lanes_internal.h"
#define EACH_TILE(...)
#define TILES static __attribute__((noinline, unused))
#define SETTLE(pointer) __asm__("" : "+r"(pointer))
#define SHARED_PRODUCT(p)
#define PRODUCT(p) (p)
#define nothing() 0
typedef size_t tile_count;
enum { DOWN = LANES == 16 ? 8 : LANES == 8 ? 6 : 4, TALL = LANES == 4 ? 8 : LANES == 8 ? 12 : 16, PAIR = 2, REST = 64 };
enum { ASKS = 1 };
#endif
/* SL_TERMS: most terms of a product; defined by files with fewer. */
#if !defined(SL_TERMS)
#define SL_TERMS 2
#endif
enum { TERMS = SL_TERMS, WANTED = 8, ASKED = 2 * LANES };
/* Whether tiles multiply rows of c by factors, and read fewer terms for the first rows: on GPUs each branch of a tile
 * costs registers, and compilers minutes. */
enum { SCALES = PAIR > 1 };

/* Rounds a product before it is added: prevents a fused a * b + c. */
#if defined(SL_DEVICE_CUDA)
SL_INLINE vector rounded(vector x) {
    uint32_t bits = sl_bits_of_float(x[0]);
    __asm__("" : "+r"(bits));
    return (vector){sl_float_of_bits(bits)};
}
#else
SL_INLINE vector rounded(vector x) {
    __asm__("" : "+v"(x));
    return x;
}
#endif

SL_INLINE size_t clamp(int64_t x, size_t most) { return x < 0 ? 0 : smaller((size_t)x, most); }

struct rows { /* of a matrix, from some row on */
    const float *at;
    size_t stride, cols;
    const uint16_t *bf16; /* if not NULL, the rows are here, and AT is not used */
};

/* Rows that tiles prefetch while they multiply: the first ROWS rows of each array, the last array first. DONE:
 * prefetched rows of that array. */
struct wanted {
    struct rows array[WANTED];
    size_t count, rows, done;
};

/* Adds COUNT arrays, whose rows begin at element FIRST. */
SL_INLINE void want(struct wanted *wanted, size_t count, const float *const *arrays, size_t first, size_t stride,
                    size_t cols) {
    for (size_t i = 0; i < count; i++)
        wanted->array[wanted->count++] = (struct rows){arrays[i] + first, stride, cols, NULL};
}

#if defined(SL_DEVICE_CUDA)
#define ask(wanted) ((void)(wanted))
#else
/* Prefetches one tile's share of lines into the second-level cache while the tile is multiplied. */
TILES void ask(struct wanted *wanted) {
    for (size_t asked = 0; asked < ASKED && wanted->count;) {
        struct rows *last = &wanted->array[wanted->count - 1];
        for (size_t c = 0; c < last->cols; c += SL_CACHE_LINE / sizeof *last->at, asked++)
            __builtin_prefetch(last->at + c, 0, 2);
        last->at += last->stride;
        if (++wanted->done < wanted->rows) continue;
        wanted->done = 0;
        wanted->count--;
    }
}
#endif

/* A term a [rows, depth] b [depth, cols]; b's rows are contiguous. */
struct term {
    size_t depth;
    const float *a;
    size_t a_row, a_column; /* from one row, or column, to the next; one of them should be 1 */
    const float *b;
    size_t b_row;
};

/* How tiles read the first term's a: BY_ROWS: each row's elements in turn; BY_TERMS: each column's, with a_row 1 and no
 * second term; ONE_ROW: like BY_ROWS, for products of one row, which need no tiles of several rows on GPUs. */
enum walk { BY_ROWS, BY_TERMS, ONE_ROW };

/* c [rows, cols] (+)= sum of the terms; c's rows are contiguous. */
struct product {
    size_t rows, cols;
    bool accumulate;
    float *c;
    size_t c_row;
    struct term term[TERMS];     /* the second may have depth 0 */
    struct wanted *wanted;       /* or NULL */
    const float *before, *after; /* [rows], or NULL; if SCALES: factors of c's rows before the addition, and after it */
    /* STAIRS, if SCALES: row r reads the first term's depth only up to r + 1 - AHEAD. Beyond, a is 0 as far as other
     * rows of its tile read; without SCALES, to its end. */
    bool stairs;
    int64_t ahead;
};

/* Read positions of a tile. Every third row of a, or every third term, has a pointer, and so do b's rows: addresses
 * relative to it reach the two after it, or more if elements are neighbours. So there are few additions of addresses,
 * and multiplications use most of the CPU's units. */
enum { THIRD = 3, POINTERS = (TALL + THIRD - 1) / THIRD, RUN = 4, RUNS = (RUN + THIRD - 1) / THIRD };
struct cursor {
    const float *a[POINTERS], *b[RUNS];
};

/* Returns all pointers on GPUs: their compiler makes one loop of both cases, and would keep a pointer set by only one
 * case in a register from one tile to the next. */
SL_INLINE int pointers_of(const bool by_rows, const int rows) {
    if (PAIR == 1) return POINTERS;
    return by_rows ? (rows + THIRD - 1) / THIRD : RUNS;
}

/* SETTLE prevents the compiler from deriving all pointers from one by additions. */
SL_INLINE void advance(const float **at, size_t by) {
    *at += by;
    SETTLE(*at);
}

/* Adds the next TERMS steps of the depth. BY_ROWS: AT has pointers to rows of a, whose a_column is 1 if there are
 * several steps. Otherwise AT has pointers to columns of a, whose a_row is 1. */
SL_INLINE void add_run(struct cursor *at, const struct term *term, vector sum[TALL][PAIR], const bool by_rows,
                       const int rows, const int vectors, const int terms) {
    const size_t a_row = term->a_row, a_column = term->a_column, b_row = term->b_row;
    SL_UNROLL
    for (int l = 0; l < terms; l++) {
        vector w[PAIR];
        SL_UNROLL
        for (int v = 0; v < vectors; v++) w[v] = load(at->b[l / THIRD] + (size_t)(l % THIRD) * b_row + v * LANES);
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            const float *a = by_rows ? at->a[i / THIRD] + (size_t)(i % THIRD) * a_row + l
                                     : at->a[l / THIRD] + (size_t)(l % THIRD) * a_column + i;
            const vector x = spread(*a);
            SL_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] += x * w[v];
        }
    }
    SL_UNROLL
    for (int i = 0; i < pointers_of(by_rows, rows); i++) advance(&at->a[i], (size_t)terms * a_column);
    SL_UNROLL
    for (int i = 0; i < RUNS; i++) advance(&at->b[i], (size_t)terms * b_row);
}

/* Adds the first TERMS of TERM's depth. */
SL_INLINE void add_term(const struct term *term, size_t terms, size_t row, size_t column, vector sum[TALL][PAIR],
                        const bool by_rows, const int rows, const int vectors) {
    struct cursor at;
    const float *a = term->a + row * term->a_row, *b = term->b + column;
    const size_t step = by_rows ? term->a_row : term->a_column;
    SL_UNROLL
    for (int i = 0; i < pointers_of(by_rows, rows); i++) at.a[i] = a + (size_t)(i * THIRD) * step;
    SL_UNROLL
    for (int i = 0; i < RUNS; i++) at.b[i] = b + (size_t)(i * THIRD) * term->b_row;
    const bool neighbours = !by_rows || term->a_column == 1;
    SL_ROLLED
    for (; neighbours && terms >= RUN; terms -= RUN) add_run(&at, term, sum, by_rows, rows, vectors, RUN);
    SL_ROLLED
    for (; terms; terms--) add_run(&at, term, sum, by_rows, rows, vectors, 1);
}

/* sum += c; c's rows are multiplied by BY [rows] first, unless BY is NULL. */
SL_INLINE void add_tile(const float *c, size_t c_row, const float *by, vector sum[TALL][PAIR], const int rows,
                        const int vectors) {
    if (!by) {
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            SL_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] += load(c + (size_t)i * c_row + v * LANES);
        }
        return;
    }
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] += rounded(by[i] * load(c + (size_t)i * c_row + v * LANES));
    }
}

SL_INLINE void tile(const struct product *p, size_t row, size_t column, const bool by_rows, const int count,
                    const int rows, const int vectors) {
    vector sum[TALL][PAIR];
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = (vector){0};
    }
    for (int t = 0; t < count; t++) { /* a term without depth may have no arrays */
        const bool climbs = SCALES && t == 0 && p->stairs;
        const size_t all = p->term[t].depth, terms = climbs ? clamp((int64_t)row + rows - p->ahead, all) : all;
        if (terms) add_term(&p->term[t], terms, row, column, sum, by_rows, rows, vectors);
    }
    float *c = p->c + row * p->c_row + column;
    const size_t c_row = p->c_row;
    if (p->accumulate) add_tile(c, c_row, SCALES && p->before ? p->before + row : NULL, sum, rows, vectors);
    if (SCALES && p->after) {
        SL_UNROLL
        for (int i = 0; i < rows; i++) {
            SL_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] *= p->after[row + (size_t)i];
        }
    }
    SL_UNROLL
    for (int i = 0; i < rows; i++) {
        SL_UNROLL
        for (int v = 0; v < vectors; v++) store(c + (size_t)i * c_row + v * LANES, sum[i][v]);
    }
}

/* Computes up to DOWN rows from ROW on, of COUNT terms. */
SL_INLINE void tiles(const struct product *p, size_t row, size_t column, const bool by_rows, const int count,
                     const int down, const int vectors) {
    const size_t end = smaller(row + (size_t)down, p->rows);
    if (down == 1 || row + (size_t)down == end) {
        tile(p, row, column, by_rows, count, down, vectors);
        return;
    }
    if (down > 8 && row + 8 <= end) {
        tile(p, row, column, by_rows, count, 8, vectors);
        row += 8;
    }
    if (down > 4 && row + 4 <= end) {
        tile(p, row, column, by_rows, count, 4, vectors);
        row += 4;
    }
    if (SCALES && down > 2 && row + 2 <= end) {
        tile(p, row, column, by_rows, count, 2, vectors);
        row += 2;
    }
    for (; row < end; row++) tile(p, row, column, by_rows, count, 1, vectors);
}

/* BY_ROWS, MOST and HIGH, the rows of a tile, are macro arguments in the loops' bodies: function arguments would be in
 * memory there, because threads share the tiles. */
#define ALL_TILES(p, all, by_rows, most, high)                                                                         \
    const tile_count across = (all) / (PAIR * LANES), down = ((p)->rows + (high) - 1) / (high);                        \
    const size_t paired = across * (PAIR * LANES);                                                                     \
    SHARED_PRODUCT(p);                                                                                                 \
    EACH_TILE()                                                                                                        \
    for (tile_count t = 0; t < across * down; t++) {                                                                   \
        if (ASKS && PRODUCT(p)->wanted && PRODUCT(p)->wanted->count) ask(PRODUCT(p)->wanted);                          \
        tiles(PRODUCT(p), t / across * (high), t % across * (PAIR * LANES), by_rows, most, high, PAIR);                \
    }                                                                                                                  \
    if (PAIR == 1 || paired == (all)) return;                                                                          \
    EACH_TILE()                                                                                                        \
    for (size_t row = 0; row < PRODUCT(p)->rows; row += TALL) tiles(PRODUCT(p), row, paired, by_rows, most, TALL, 1)

TILES void tiles_by_rows(const struct product *p, size_t cols) { ALL_TILES(p, cols, true, TERMS, DOWN); }
TILES void tiles_by_terms(const struct product *p, size_t cols) { ALL_TILES(p, cols, false, TERMS, DOWN); }
TILES void first_by_rows(const struct product *p, size_t cols) { ALL_TILES(p, cols, true, 1, DOWN); }
TILES void first_by_terms(const struct product *p, size_t cols) { ALL_TILES(p, cols, false, 1, DOWN); }
TILES void first_of_row(const struct product *p, size_t cols) { ALL_TILES(p, cols, true, 1, 1); }

/* Multiplies whole vectors, of COUNT terms. COLS: a multiple of LANES. CPUs use the code for all terms in every case,
 * to have less code. */
SL_INLINE void multiply_vectors(const struct product *p, const enum walk walk, size_t cols, const int count) {
    const bool first = PAIR == 1 && count == 1;
    if (walk == ONE_ROW && first)
        first_of_row(p, cols);
    else if (walk == BY_TERMS && first)
        first_by_terms(p, cols);
    else if (walk == BY_TERMS)
        tiles_by_terms(p, cols);
    else if (first)
        first_by_rows(p, cols);
    else
        tiles_by_rows(p, cols);
}

/* Multiplies columns behind the last full vector, in a padded copy. Such a product has one term. */
SL_INLINE void multiply_rest(const struct product *p, const enum walk walk, size_t column) {
    _Alignas(SL_CACHE_LINE) float b[REST * LANES], c[REST * LANES];
    const struct term *term = &p->term[0];
    const size_t rest = p->cols - column;
    for (size_t l = 0; l < term->depth; l++) {
        for (size_t j = 0; j < LANES; j++) b[l * LANES + j] = j < rest ? term->b[l * term->b_row + column + j] : 0.0f;
    }
    const struct product copy = {.rows = p->rows,
                                 .cols = LANES,
                                 .c = c,
                                 .c_row = LANES,
                                 .term = {{term->depth, term->a, term->a_row, term->a_column, b, LANES}},
                                 .stairs = p->stairs,
                                 .ahead = p->ahead};
    multiply_vectors(&copy, walk, LANES, 1);
    for (size_t i = 0; i < p->rows; i++) {
        float *to = p->c + i * p->c_row + column;
        for (size_t j = 0; j < rest; j++) {
            const float old = p->accumulate ? to[j] : 0.0f;
            const float kept = SCALES && p->before ? rounded(spread(p->before[i] * old))[0] : old;
            to[j] = (kept + c[i * LANES + j]) * (SCALES && p->after ? p->after[i] : 1.0f);
        }
    }
}

SL_INLINE void multiply(struct product p, const enum walk walk) {
    const size_t whole = p.cols / LANES * LANES;
    if (whole) multiply_vectors(&p, walk, whole, 1);
    if (whole < p.cols) multiply_rest(&p, walk, whole);
}

/* Adds up COUNT terms, in whole vectors. */
SL_INLINE void multiply_terms(struct product p, const int count) { multiply_vectors(&p, BY_ROWS, p.cols, count); }

/* ---- rows of a matrix ---- */

/* Returns a new struct: if a member of a struct shared by threads changes under a condition, code by clang 19 for GPUs
 * changes it for thread 0 alone, and then all threads store their own (tests/spmd/device/stores.py). */
SL_INLINE struct rows from_row(struct rows rows, size_t row) {
    const size_t by = row * rows.stride;
    return (struct rows){rows.bf16 ? rows.at : rows.at + by, rows.stride, rows.cols,
                         rows.bf16 ? rows.bf16 + by : rows.bf16};
}

/* Y [COLS, WIDE] = columns from FROM on of COUNT rows, transposed, times FACTOR; surplus lanes of a vector become 0. */
SL_INLINE void transpose(struct rows x, size_t count, size_t from, size_t cols, float factor, float *y, size_t wide) {
    EACH_TILE()
    for (size_t i = 0; i < count; i += LANES) {
        const size_t stride = x.stride + nothing();
        const float *in = x.at + i * stride + from;
        float *out = y + i;
        const size_t rows = smaller(LANES, count - i), whole = rows == LANES ? cols / 4 * 4 : 0;
        for (size_t c = 0; c < whole; c += 4) {
            vector columns[4];
            load_columns(in + c, stride, columns);
            SL_UNROLL
            for (size_t j = 0; j < 4; j++) store(out + (c + j) * wide, factor * columns[j]);
        }
        SL_ROLLED
        for (size_t c = whole; c < cols; c++) {
            for (size_t j = 0; j < LANES; j++) out[c * wide + j] = j < rows ? factor * in[j * stride + c] : 0.0f;
        }
    }
}

/* y [rows, cols], dense */
SL_INLINE void copy_rows(size_t rows, size_t cols, const float *x, size_t stride, float *y) {
    enum { PIECE = 32 / LANES }; /* vectors; most heads have 32 columns or a multiple */
    for (size_t i = 0; i < rows; i++) {
        const float *in = x + i * stride;
        float *out = y + i * cols;
        size_t c = 0;
        for (; c + PIECE * LANES <= cols; c += PIECE * LANES) {
            vector x[PIECE];
            SL_UNROLL
            for (int v = 0; v < PIECE; v++) x[v] = load(in + c + v * LANES);
            SL_UNROLL
            for (int v = 0; v < PIECE; v++) store(out + c + v * LANES, x[v]);
            SETTLE(out); /* otherwise the compiler calls memcpy for each row */
        }
        for (; c < cols; c++) out[c] = in[c];
    }
}

/* y [rows, cols], dense */
SL_INLINE void widen_rows(size_t rows, size_t cols, const uint16_t *x, size_t stride, float *y) {
    EACH_TILE()
    for (size_t i = 0; i < rows; i++) {
        const uint16_t *in = x + i * (stride + nothing());
        float *out = y + i * cols;
        size_t c = 0;
        for (; c + LANES <= cols; c += LANES) store(out + c, load_bf16(in + c));
        for (; LANES > 1 && c < cols; c++) out[c] = sl_float_of_bf16(in[c]);
    }
}

/* Dot product. X is bf16 if HALF, with the same bits as for the widened x. */
SL_INLINE float dot(size_t n, const void *x, const bool half, const float *y) {
    const enum sl_dtype dtype = half ? SL_BF16 : SL_F32;
    vector sum = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += load_as(dtype, x, i) * load(y + i);
    float lane[LANES], rest = 0.0f;
    store(lane, sum);
    for (; LANES > 1 && i < n; i++) {
        const float *factor = y + i;
        SETTLE(factor); /* otherwise, by vectorizing this loop, a compiler would round products for one type only */
        rest += sl_load_float(sl_f32_or_bf16(dtype), x, i) * *factor;
    }
    for (int step = LANES / 2; step > 0; step /= 2) {
        for (int l = 0; l < step; l++) lane[l] += lane[l + step];
    }
    return lane[0] + rest;
}

#endif
