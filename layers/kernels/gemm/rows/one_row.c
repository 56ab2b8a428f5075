/* one_row.c - products of one row, built once per CPU level.
 *
 * The build defines SL_ONE_ROW, the table's name, and lets the compiler fuse a * b + c. */
#include "layers/kernels/gemm/rows/one_row.h"
#include "layers/kernels/loops/lanes_internal.h"
#include "spmd/base/memory.h"

enum {
    /* Vectors of columns whose sums stay in registers: CPUs without AVX-512 have 16 registers, two of them for
       operands; */
    STRIP = LANES < 16 ? 14 : 16,
    WIDEST_STRIP = 16, /* of all CPUs */
    SPLIT_STRIP = 8,   /* vectors for bf16 on CPUs with 16 registers, some of which widen it */
    AHEAD = 16,        /* rows of B of prefetch distance */
    NEAR = 2 << 20,    /* bytes of weights up to which strips are faster: they stay in caches, which respond fast */
    TOGETHER = 8,      /* rows of B that are read side by side if they are not in cache */
    COLUMNS = 1024,    /* columns whose sums stay in the first-level cache */
    BF16_PART = 128,   /* as in gemm_blocked.c */
};

/* Rows of B are N elements apart. Functions below are compiled for each type: callers pass a constant TYPES. */
struct operands {
    const void *a, *b;
    size_t n;
};

struct types {
    enum sl_dtype a, b;
};

/* Loads two vectors of columns; bf16 in another order: the even columns, then the odd ones. This takes fewer
 * instructions, and order_sums restores the order in the sums. */
static inline void load_two(const enum sl_dtype dtype, const void *b, size_t at, vector w[2]) {
    if (dtype == SL_BF16) {
        load_pairs((const uint16_t *)b + at, w);
    } else {
        w[0] = load((const float *)b + at);
        w[1] = load((const float *)b + at + LANES);
    }
}

static inline void order_sums(const enum sl_dtype dtype, vector sums[2]) {
    if (dtype == SL_BF16) order_pairs(sums);
}

/* c = sum, + c in parts after the first, + bias. */
static inline void finish_vector(vector sum, bool first, const float *bias, float *c) {
    if (!first) sum += load(c);
    if (bias) sum += load(bias);
    store(c, sum);
}

/* A part of the sums. */
struct part {
    size_t from, end;
    bool first;
    const float *bias; /* for the last part; NULL: none */
};

/* Prefetches elements [AT, AT + COUNT) of the row AHEAD rows on, for the second-level cache. */
static inline __attribute__((always_inline)) void ask_ahead(const struct operands *o, const enum sl_dtype dtype,
                                                            size_t at, const size_t count) {
    const size_t size = dtype == SL_BF16 ? sizeof(uint16_t) : sizeof(float);
    const char *from = (const char *)o->b + (at + AHEAD * o->n) * size;
    for (size_t i = 0; i < count * size; i += SL_CACHE_LINE) __builtin_prefetch(from + i, 0, 2);
}

/* ---- cached weights: strips of columns, from the first row to the last ---- */

/* Returns whether strips of B are narrow: a CPU does not prefetch their next rows by itself. */
static inline bool splits(const struct types types) { return types.b == SL_BF16 && LANES < 16; }

/* Computes VECTORS vectors of columns from COLUMN on. */
static inline __attribute__((always_inline)) void add_strip(const struct operands *o, const struct part *part,
                                                            size_t column, float *c, const int vectors,
                                                            const struct types types) {
    vector sum[WIDEST_STRIP];
    SL_UNROLL
    for (int v = 0; v < vectors; v++) sum[v] = (vector){0};
    for (size_t row = part->from; row < part->end; row++) {
        const vector x = spread(sl_load_float(types.a, o->a, row));
        const size_t at = row * o->n + column;
        if (splits(types)) ask_ahead(o, types.b, at, (size_t)vectors * LANES);
        if (vectors == 1) sum[0] += x * load_as(types.b, o->b, at);
        SL_UNROLL
        for (int v = 0; v + 2 <= vectors; v += 2) {
            vector w[2];
            load_two(types.b, o->b, at + (size_t)v * LANES, w);
            sum[v] += x * w[0];
            sum[v + 1] += x * w[1];
        }
    }
    SL_UNROLL
    for (int v = 0; v + 2 <= vectors; v += 2) order_sums(types.b, sum + v);
    SL_UNROLL
    for (int v = 0; v < vectors; v++)
        finish_vector(sum[v], part->first, part->bias ? part->bias + column + v * LANES : NULL, c + column + v * LANES);
}

/* Returns the vectors of the next strip, of LEFT vectors: as few strips as possible, of about equal width. A narrow
 * last strip would read a line or two of each row, and CPUs would not prefetch it. */
static inline size_t next_strip(size_t left, size_t widest) {
    const size_t strips = (left + widest - 1) / widest, width = sl_round_up((left + strips - 1) / strips, 2);
    return left == 1 ? 1 : width <= left ? width : left - 1;
}

#define SL_STRIP(vectors)                                                                                              \
    case vectors:                                                                                                      \
        add_strip(o, part, column, c, vectors, types);                                                                 \
        break

static inline __attribute__((always_inline)) void
add_strips(const struct operands *o, size_t columns, const struct part *part, float *c, const struct types types) {
    for (size_t column = 0, vectors; column < columns; column += vectors * LANES) {
        vectors = next_strip((columns - column) / LANES, splits(types) ? SPLIT_STRIP : STRIP);
        switch (vectors) {
            SL_STRIP(1);
            SL_STRIP(2);
            SL_STRIP(4);
            SL_STRIP(6);
            SL_STRIP(8);
            SL_STRIP(10);
            SL_STRIP(12);
            SL_STRIP(14);
            SL_STRIP(16);
        }
    }
}

/* ---- weights in memory: several rows side by side, from their beginnings to their ends ---- */

/* Adds ROWS terms to sums [cols]: rows of B from ROW on, columns from COLUMN on. FRESH: no sums exist yet. */
static inline __attribute__((always_inline)) void add_rows(const struct operands *o, size_t row, size_t column,
                                                           size_t cols, bool fresh, float *sums, const int rows,
                                                           const struct types types) {
    vector x[TOGETHER];
    for (int i = 0; i < rows; i++) x[i] = spread(sl_load_float(types.a, o->a, row + (size_t)i));
    const size_t first = row * o->n + column;
    size_t j = 0;
    for (; j + 2 * LANES <= cols; j += 2 * LANES) {
        vector sum[2] = {{0}, {0}};
        for (int i = 0; i < 2 && !fresh; i++) sum[i] = load(sums + j + i * LANES);
        for (int i = 0; i < rows; i++) {
            vector w[2];
            ask_ahead(o, types.b, first + (size_t)i * o->n + j, 2 * LANES);
            load_two(types.b, o->b, first + (size_t)i * o->n + j, w);
            sum[0] += x[i] * w[0];
            sum[1] += x[i] * w[1];
        }
        for (int i = 0; i < 2; i++) store(sums + j + i * LANES, sum[i]);
    }
    if (j == cols) return;
    vector sum = fresh ? (vector){0} : load(sums + j);
    for (int i = 0; i < rows; i++) sum += x[i] * load_as(types.b, o->b, first + (size_t)i * o->n + j);
    store(sums + j, sum);
}

static inline __attribute__((always_inline)) void finish_rows(size_t cols, const struct part *part, size_t column,
                                                              const float *sums, float *c, const struct types types) {
    for (size_t j = 0; j < cols; j += 2 * LANES) {
        const bool two = j + 2 * LANES <= cols;
        vector sum[2] = {load(sums + j), two ? load(sums + j + LANES) : (vector){0}};
        if (two) order_sums(types.b, sum);
        for (size_t i = j; i < j + 2 * LANES && i < cols; i += LANES)
            finish_vector(sum[(i - j) / LANES], part->first, part->bias ? part->bias + column + i : NULL,
                          c + column + i);
    }
}

static inline __attribute__((always_inline)) void
add_all_rows(const struct operands *o, size_t columns, const struct part *part, float *c, const struct types types) {
    _Alignas(SL_CACHE_LINE) float sums[COLUMNS];
    for (size_t column = 0; column < columns; column += COLUMNS) {
        const size_t cols = columns - column < COLUMNS ? columns - column : COLUMNS;
        size_t row = part->from;
        for (; row + TOGETHER <= part->end; row += TOGETHER)
            add_rows(o, row, column, cols, row == part->from, sums, TOGETHER, types);
        for (; row < part->end; row++) add_rows(o, row, column, cols, row == part->from, sums, 1, types);
        finish_rows(cols, part, column, sums, c, types);
    }
}

/* ---- a product ---- */

/* Adds up the sums in parts of DEPTH terms. */
static inline __attribute__((always_inline)) void multiply(const struct operands *o, size_t columns, size_t k,
                                                           size_t depth, const float *bias, float *c,
                                                           const struct types types) {
    const bool near = o->n * k * sl_dtype_size(types.b) <= NEAR;
    for (size_t from = 0; from < k; from += depth) {
        const bool last = from + depth >= k;
        const struct part part = {from, last ? k : from + depth, from == 0, last ? bias : NULL};
        if (near)
            add_strips(o, columns, &part, c, types);
        else
            add_all_rows(o, columns, &part, c, types);
    }
}

static void multiply_f32(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                         float *c) {
    const struct operands o = {a, b, n};
    multiply(&o, columns, k, sl_one_row_depth(k), bias, c, (struct types){SL_F32, SL_F32});
}

static void multiply_widening(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                              float *c) {
    const struct operands o = {a, b, n};
    multiply(&o, columns, k, sl_one_row_depth(k), bias, c, (struct types){SL_F32, SL_BF16});
}

static void multiply_bf16(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                          float *c) {
    const struct operands o = {a, b, n};
    multiply(&o, columns, k, BF16_PART, bias, c, (struct types){SL_BF16, SL_BF16});
}

const struct sl_one_row SL_ONE_ROW = {
    .lanes = LANES, .f32 = multiply_f32, .widening = multiply_widening, .bf16 = multiply_bf16};
