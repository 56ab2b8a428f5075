/* one_row.c - products of one row, built once per CPU level.
 *
 * The build defines SL_ONE_ROW, the table's name, and lets the compiler fuse a * b + c. */
#include "layers/kernels/rows/one_row.h"
#include "layers/kernels/rows/vectors_internal.h"
#include "spmd/base/memory.h"

#include <string.h>

enum {
    TOGETHER = 8,    /* rows of B that are read side by side */
    COLUMNS = 1024,  /* whose sums stay in the first-level cache */
    PART = 320,      /* few_rows.c's */
    BF16_PART = 128, /* gemm_blocked.c's */
};

static inline float float_of_bf16(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Of floats, or of bf16. */
struct operands {
    const float *a, *b;
    const uint16_t *a_bf16, *b_bf16;
    size_t n;
};

/* sums [cols] of ROWS terms more: of rows ROW on of B, columns COLUMN on. FRESH: there are none yet. */
static inline __attribute__((always_inline)) void add_rows(const struct operands *o, size_t row, size_t column,
                                                           size_t cols, bool fresh, float *sums, const int rows,
                                                           const bool bf16) {
    vector x[TOGETHER];
    for (int i = 0; i < rows; i++)
        x[i] = spread(bf16 ? float_of_bf16(o->a_bf16[row + (size_t)i]) : o->a[row + (size_t)i]);
    const size_t first = row * o->n + column;
    for (size_t j = 0; j < cols; j += LANES) {
        vector sum = fresh ? (vector){0} : load(sums + j);
        for (int i = 0; i < rows; i++) {
            const size_t at = first + (size_t)i * o->n + j;
            sum += x[i] * (bf16 ? load_bf16(o->b_bf16 + at) : load(o->b + at));
        }
        store(sums + j, sum);
    }
}

/* c = sums, + c where these are not the first, + bias. */
static inline void finish(size_t cols, const float *sums, bool first, const float *bias, float *c) {
    for (size_t j = 0; j < cols; j += LANES) {
        vector sum = load(sums + j);
        if (!first) sum += load(c + j);
        if (bias) sum += load(bias + j);
        store(c + j, sum);
    }
}

/* The sums are taken in parts of DEPTH terms. */
static inline __attribute__((always_inline)) void multiply(const struct operands *o, size_t columns, size_t k,
                                                           size_t depth, const float *bias, float *c, const bool bf16) {
    _Alignas(SL_CACHE_LINE) float sums[COLUMNS];
    for (size_t column = 0; column < columns; column += COLUMNS) {
        const size_t cols = columns - column < COLUMNS ? columns - column : COLUMNS;
        for (size_t from = 0; from < k; from += depth) {
            const bool last = from + depth >= k;
            const size_t end = last ? k : from + depth;
            size_t row = from;
            for (; row + TOGETHER <= end; row += TOGETHER)
                add_rows(o, row, column, cols, row == from, sums, TOGETHER, bf16);
            for (; row < end; row++) add_rows(o, row, column, cols, row == from, sums, 1, bf16);
            finish(cols, sums, from == 0, last && bias ? bias + column : NULL, c + column);
        }
    }
}

/* In few_rows.c's parts. */
static void multiply_f32(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                         float *c) {
    const struct operands o = {.a = a, .b = b, .n = n};
    const size_t parts = (k + PART - 1) / PART, depth = sl_round_up((k + parts - 1) / parts, 8);
    multiply(&o, columns, k, depth, bias, c, false);
}

static void multiply_bf16(size_t columns, size_t n, size_t k, const void *a, const void *b, const float *bias,
                          float *c) {
    const struct operands o = {.a_bf16 = a, .b_bf16 = b, .n = n};
    multiply(&o, columns, k, BF16_PART, bias, c, true);
}

const struct sl_one_row SL_ONE_ROW = {.lanes = LANES, .f32 = multiply_f32, .bf16 = multiply_bf16};
