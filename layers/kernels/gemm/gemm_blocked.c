/* gemm_blocked.c - matrix products block by block: copies blocks of op(A) and B to the stack as floats, and multiplies
 * them by few_rows.c. For any shape, on any CPU. bf16 is widened exactly: only the sums are rounded, as in float
 * products. */
#include "layers/kernels/gemm/rows/few_rows.h"
#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/base/memory.h"
#include "spmd/base/numbers/bf16.h"

enum { ROWS = 64, COLUMNS = 128, DEPTH = 128 }; /* of blocks; multiples of every vector's lanes */

struct blocks {
    _Alignas(SL_CACHE_LINE) float a[ROWS * DEPTH];
    _Alignas(SL_CACHE_LINE) float b[DEPTH * COLUMNS];
    _Alignas(SL_CACHE_LINE) float c[ROWS * COLUMNS];
};

/* An operand: element (i, j) is data[i * row + j * column]. */
struct matrix {
    enum sl_dtype dtype;
    const void *data;
    size_t row, column;
};

/* A block of C: COLS columns, padded to WIDTH, whole vectors. */
struct part {
    size_t i, j, rows, cols, width;
};

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    (void)gemm, (void)error; /* nothing to prepare */
    return SL_OK;
}

static void release(struct sl_gemm *gemm) { (void)gemm; }

static void copy_floats(size_t n, const float *x, size_t stride, float *to) {
    for (size_t i = 0; i < n; i++) to[i] = x[i * stride];
}

static void copy_bf16(size_t n, const uint16_t *x, size_t stride, float *to) {
    for (size_t i = 0; i < n; i++) to[i] = sl_float_of_bf16(x[i * stride]);
}

/* to [rows, width] = ROWS x COLS elements of MATRIX from (I, J) on, padded with columns of zeros. */
static void copy(const struct matrix *matrix, size_t i, size_t j, size_t rows, size_t cols, size_t width, float *to) {
    for (size_t r = 0; r < rows; r++, to += width) {
        const size_t first = (i + r) * matrix->row + j * matrix->column;
        if (matrix->dtype == SL_BF16)
            copy_bf16(cols, (const uint16_t *)matrix->data + first, matrix->column, to);
        else
            copy_floats(cols, (const float *)matrix->data + first, matrix->column, to);
        for (size_t c = cols; c < width; c++) to[c] = 0.0f;
    }
}

/* blocks->c [rows, width] = op(A) op(B). The dimension of the vectors is padded. */
static void multiply(const struct sl_few_rows *few, const struct sl_gemm *gemm, const struct matrix *a,
                     const struct matrix *b, const struct part *part, struct blocks *blocks) {
    const size_t k = (size_t)gemm->k;
    for (size_t l = 0; l < k; l += DEPTH) {
        const size_t depth = smaller(DEPTH, k - l);
        if (gemm->transpose_b) {
            const size_t padded = sl_round_up(depth, few->lanes);
            copy(a, part->i, l, part->rows, depth, padded, blocks->a);
            copy(b, part->j, l, part->width, depth, padded, blocks->b);
            few->multiply_transposed(part->rows, part->width, padded, blocks->a, blocks->b, l > 0, blocks->c);
        } else {
            copy(a, part->i, l, part->rows, depth, depth, blocks->a);
            copy(b, l, part->j, depth, part->cols, part->width, blocks->b);
            few->multiply(part->rows, part->width, depth, blocks->a, blocks->b, NULL, l > 0, blocks->c);
        }
    }
}

/* C = sums, + bias or + C. */
static void finish(const struct part *part, const float *sums, const float *bias, bool accumulate, size_t n, float *c) {
    for (size_t r = 0; r < part->rows; r++, sums += part->width) {
        float *row = c + (part->i + r) * n + part->j;
        for (size_t x = 0; x < part->cols; x++)
            row[x] = (bias ? bias[part->j + x] : accumulate ? row[x] : 0.0f) + sums[x];
    }
}

static int execute(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    (void)queue;
    const struct sl_few_rows *few = sl_few_rows_select();
    const size_t m = (size_t)arrays->count * (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const struct matrix left = {arrays->a.type, arrays->a.at, gemm->transpose_a ? 1 : k, gemm->transpose_a ? m : 1};
    const struct matrix right = {arrays->b.type, arrays->b.at, gemm->transpose_b ? k : n, 1}; /* as stored */
    const float *bias = gemm->epilogue == SL_EPILOGUE_BIAS ? arrays->bias.at : NULL;
    float *c = arrays->c.rows.at;
    struct blocks blocks;
    for (size_t j = 0; j < n; j += COLUMNS) {
        const size_t cols = smaller(COLUMNS, n - j), width = gemm->transpose_b ? cols : sl_round_up(cols, few->lanes);
        for (size_t i = 0; i < m; i += ROWS) {
            const struct part part = {i, j, smaller(ROWS, m - i), cols, width};
            multiply(few, gemm, &left, &right, &part, &blocks);
            finish(&part, blocks.c, bias, arrays->x.at != NULL, n, c);
        }
    }
    return SL_OK;
}

const struct sl_gemm_backend sl_gemm_blocked = {
    .name = "blocked", .plan = plan, .execute = execute, .release = release};
