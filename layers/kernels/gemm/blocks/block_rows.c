/* block_rows.c - products with weights in quantized blocks, built once per CPU level.
 *
 * Sums have the order of few_rows_transposed.c: lane by lane over DEPTH terms, then over the lanes. The build defines
 * SL_BLOCK_ROWS, the table's name, and lets the compiler fuse a * b + c. */
#include "layers/kernels/gemm/blocks/block_rows.h"
#include "layers/kernels/loops/lanes_internal.h"
#include "spmd/base/numbers/f16.h"
#include "spmd/base/memory.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

enum {
    BLOCK = 32,                 /* weights of a block of the types below */
    VECTORS = BLOCK / LANES,    /* vectors of such a block */
    HALF = BLOCK / 2 / LANES,   /* vectors of its first half */
    DEPTH = 512,                /* as in few_rows_transposed.c: whole blocks of every type */
    TOGETHER = 4,               /* rows of weights with interleaved sums, because a sum waits for its last term */
    AHEAD = 16384,              /* bytes of prefetch distance: a CPU's own prefetcher does not follow several rows */
    ROWS = LANES == 16 ? 4 : 2, /* rows of A per load of weights */
    MOST = 96 /* rows of A that stay in the second-level cache while all weights are widened and multiplied */
};

/* Types with blocks that are widened in registers; sl_quantized's read widens all others. */
enum kind { Q8_0 = 8, Q4_0 = 2, Q4_1 = 3, OTHER = -1 };

static enum kind kind_of(const struct sl_quantized *type) {
    const uint32_t number = type->number;
    return number == Q8_0 || number == Q4_0 || number == Q4_1 ? (enum kind)number : OTHER;
}

typedef int8_t codes __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef uint8_t pairs __attribute__((vector_size(LANES), aligned(1), may_alias));

static inline float half_at(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
#if defined(__F16C__)
    return _cvtsh_ss(half);
#else
    return sl_float_of_f16(half);
#endif
}

static inline vector floats_of(integers x) { return __builtin_convertvector(x, vector); }

/* Loads a block of 4-bit codes: weights 16 apart share a byte; weight = code * scale + least. */
static inline __attribute__((always_inline)) void load_fours_of_bits(const uint8_t *at, float scale, float least,
                                                                     vector w[VECTORS]) {
    SL_UNROLL
    for (int v = 0; v < HALF; v++) {
        const words both = __builtin_convertvector(*(const pairs *)(const void *)(at + v * LANES), words);
        w[v] = floats_of((integers)(both & 15)) * scale + least;
        w[HALF + v] = floats_of((integers)(both >> 4)) * scale + least;
    }
}

/* Loads the block at AT. Callers pass a constant KIND. */
static inline __attribute__((always_inline)) void load_block(const enum kind kind, const uint8_t *at,
                                                             vector w[VECTORS]) {
    const float scale = half_at(at);
    if (kind == Q4_0) load_fours_of_bits(at + 2, scale, -8.0f * scale, w);
    if (kind == Q4_1) load_fours_of_bits(at + 4, scale, half_at(at + 2), w);
    SL_UNROLL
    for (int v = 0; v < VECTORS && kind == Q8_0; v++)
        w[v] = floats_of(__builtin_convertvector(*(const codes *)(const void *)(at + 2 + v * LANES), integers)) * scale;
}

static inline size_t bytes_of(const enum kind kind) { return kind == Q8_0 ? 34 : kind == Q4_0 ? 18 : 20; }

/* LANES rows of weights; if fewer are left, the last one is repeated. */
struct tile {
    const struct sl_quantized *type;
    const uint8_t *row[LANES];
};

static struct tile tile_of(const struct sl_blocks *b, size_t first, size_t end) {
    struct tile tile = {.type = b->type};
    for (size_t j = 0; j < LANES; j++) tile.row[j] = sl_blocks_row(b, first + j < end ? first + j : end - 1);
    return tile;
}

/* ---- one row: widened in registers ---- */

/* SUMS [LANES rows of weights] = lanes of their products with A, over terms [FROM, END). */
static inline __attribute__((always_inline)) void dot_blocks(const enum kind kind, const struct tile *tile,
                                                             const float *a, size_t from, size_t end, vector *sums) {
    for (int j = 0; j < LANES; j += TOGETHER) {
        vector sum[TOGETHER];
        SL_UNROLL
        for (int i = 0; i < TOGETHER; i++) sum[i] = (vector){0};
        for (size_t l = from; l < end; l += BLOCK) {
            SL_UNROLL
            for (int i = 0; i < TOGETHER; i++) {
                const uint8_t *at = tile->row[j + i] + l / BLOCK * bytes_of(kind);
                vector w[VECTORS];
                __builtin_prefetch(at + AHEAD, 0, 2);
                load_block(kind, at, w);
                SL_UNROLL
                for (int v = 0; v < VECTORS; v++) sum[i] += load(a + l + v * LANES) * w[v];
            }
        }
        SL_UNROLL
        for (int i = 0; i < TOGETHER; i++) sums[j + i] = sum[i];
    }
}

/* ---- more rows, or other types: widened in the first-level cache ---- */

static inline __attribute__((always_inline)) void widen_blocks(const enum kind kind, const uint8_t *row, size_t from,
                                                               size_t end, float *to) {
    for (size_t l = from; l < end; l += BLOCK, to += BLOCK) {
        vector w[VECTORS];
        load_block(kind, row + l / BLOCK * bytes_of(kind), w);
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) store(to + v * LANES, w[v]);
    }
}

/* TO = weights [FROM, END) of ROW, whole blocks. */
static void widen_row(const struct sl_quantized *type, const uint8_t *row, size_t from, size_t end, float *to) {
    switch (kind_of(type)) {
    case Q8_0:
        widen_blocks(Q8_0, row, from, end, to);
        return;
    case Q4_0:
        widen_blocks(Q4_0, row, from, end, to);
        return;
    case Q4_1:
        widen_blocks(Q4_1, row, from, end, to);
        return;
    case OTHER:
        for (size_t l = from; l < end; l += type->elements)
            type->read(row + l / type->elements * type->bytes, to + (l - from));
    }
}

/* SUMS [rows][LANES] = products of rows of A, which are K apart, with W [LANES, DEPTH]. */
static inline __attribute__((always_inline)) void dot_floats(const float *w, const float *a, size_t k, size_t depth,
                                                             vector *sums, const int rows) {
    for (int j = 0; j < LANES; j += TOGETHER) {
        vector sum[ROWS * TOGETHER];
        SL_UNROLL
        for (int i = 0; i < rows * TOGETHER; i++) sum[i] = (vector){0};
        for (size_t l = 0; l < depth; l += LANES) {
            vector x[ROWS];
            SL_UNROLL
            for (int r = 0; r < rows; r++) x[r] = load(a + (size_t)r * k + l);
            SL_UNROLL
            for (int i = 0; i < TOGETHER; i++) {
                const vector y = load(w + (j + i) * DEPTH + l);
                SL_UNROLL
                for (int r = 0; r < rows; r++) sum[r * TOGETHER + i] += x[r] * y;
            }
        }
        SL_UNROLL
        for (int r = 0; r < rows; r++) {
            SL_UNROLL
            for (int i = 0; i < TOGETHER; i++) sums[r * LANES + j + i] = sum[r * TOGETHER + i];
        }
    }
}

/* ---- a product ---- */

/* Some columns of C, and the terms [from, end) of their sums. */
struct part {
    size_t n, k; /* of C and of A */
    size_t first, columns;
    size_t from, end;
    const float *bias; /* for the last part; NULL: none */
};

/* C's row = sums over SUMS' lanes, + C in parts after the first, + bias. */
static void finish(const struct part *p, const vector *sums, float *c) {
    float whole[LANES];
    store(whole, sum_lanes(sums));
    for (size_t j = 0; j < p->columns; j++) {
        const float sum = (p->from ? c[p->first + j] : 0.0f) + whole[j];
        c[p->first + j] = p->bias ? sum + p->bias[p->first + j] : sum;
    }
}

static void multiply_row(const struct part *p, const struct tile *tile, const float *a, float *c) {
    vector sums[LANES];
    if (kind_of(tile->type) == Q8_0)
        dot_blocks(Q8_0, tile, a, p->from, p->end, sums);
    else if (kind_of(tile->type) == Q4_0)
        dot_blocks(Q4_0, tile, a, p->from, p->end, sums);
    else
        dot_blocks(Q4_1, tile, a, p->from, p->end, sums);
    finish(p, sums, c);
}

static void multiply_rows(const struct part *p, const struct tile *tile, size_t m, const float *a, float *c) {
    _Alignas(SL_CACHE_LINE) float w[LANES * DEPTH];
    vector sums[ROWS * LANES];
    const size_t depth = p->end - p->from;
    for (int j = 0; j < LANES; j++) widen_row(tile->type, tile->row[j], p->from, p->end, w + j * DEPTH);
    for (size_t i = 0; i + ROWS <= m; i += ROWS, a += ROWS * p->k, c += ROWS * p->n) {
        dot_floats(w, a + p->from, p->k, depth, sums, ROWS);
        for (size_t r = 0; r < ROWS; r++) finish(p, sums + r * LANES, c + r * p->n);
    }
    for (size_t i = m - m % ROWS; i < m; i++, a += p->k, c += p->n) {
        dot_floats(w, a + p->from, p->k, depth, sums, 1);
        finish(p, sums, c);
    }
}

/* Computes columns [FIRST, END) of M rows. */
static void multiply_columns(const struct sl_blocks *b, size_t first, size_t end, size_t m, const float *a,
                             const float *bias, float *c) {
    const bool in_registers = m == 1 && kind_of(b->type) != OTHER;
    struct part p = {.n = b->rows, .k = b->columns};
    for (p.first = first; p.first < end; p.first += LANES) {
        const struct tile tile = tile_of(b, p.first, end);
        p.columns = end - p.first < LANES ? end - p.first : LANES;
        for (p.from = 0; p.from < p.k; p.from = p.end) {
            p.end = p.k - p.from < DEPTH ? p.k : p.from + DEPTH;
            p.bias = p.end == p.k ? bias : NULL;
            if (in_registers)
                multiply_row(&p, &tile, a, c);
            else
                multiply_rows(&p, &tile, m, a, c);
        }
    }
}

static void multiply(const struct sl_blocks *b, size_t first, size_t end, size_t m, const float *a, const float *bias,
                     float *c) {
    for (size_t row = 0; row < m; row += MOST)
        multiply_columns(b, first, end, m - row < MOST ? m - row : MOST, a + row * b->columns, bias, c + row * b->rows);
}

static void widen(const struct sl_blocks *b, size_t first, size_t count, float *to) {
    for (size_t row = first; row < first + count; row++, to += b->columns)
        widen_row(b->type, sl_blocks_row(b, row), 0, b->columns, to);
}

const struct sl_block_rows SL_BLOCK_ROWS = {multiply, widen};
