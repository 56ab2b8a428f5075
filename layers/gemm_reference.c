/* gemm_reference.c - matrix products by plain loops: every element of C adds its products in ascending k, in float. */
#include "layers/gemm.h"

#include <string.h>

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    (void)gemm, (void)error; /* nothing to prepare */
    return SL_OK;
}

static void release(struct sl_gemm *gemm) { (void)gemm; }

/* row [n] += a [k] B, B stored [k, n]; the elements of a lie STRIDE apart. */
static void multiply_row(size_t n, size_t k, const float *a, size_t stride, const float *b, float *row) {
    for (size_t l = 0; l < k; l++) {
        const float x = a[l * stride];
        for (size_t j = 0; j < n; j++) row[j] += x * b[l * n + j];
    }
}

/* The same, B stored [n, k]. */
static void multiply_row_transposed(size_t n, size_t k, const float *a, size_t stride, const float *b, float *row) {
    for (size_t j = 0; j < n; j++) {
        float sum = row[j];
        for (size_t l = 0; l < k; l++) sum += a[l * stride] * b[j * k + l];
        row[j] = sum;
    }
}

static int execute(const struct sl_gemm *gemm, const float *a, const float *b, const float *bias, bool accumulate,
                   float *c, void *queue) {
    (void)queue;
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const size_t next_row = gemm->transpose_a ? 1 : k, next_column = gemm->transpose_a ? m : 1; /* in op(A) */
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * n;
        if (gemm->epilogue == SL_EPILOGUE_BIAS) {
            memcpy(row, bias, n * sizeof *row);
        } else if (!accumulate) {
            memset(row, 0, n * sizeof *row);
        }
        (gemm->transpose_b ? multiply_row_transposed : multiply_row)(n, k, a + i * next_row, next_column, b, row);
    }
    return SL_OK;
}

const struct sl_gemm_backend sl_gemm_reference = {
    .name = "reference", .plan = plan, .execute = execute, .release = release};
