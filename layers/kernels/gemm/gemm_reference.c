/* gemm_reference.c - matrix products by plain loops, on the device: every element of C adds its products in ascending
 * k, in float. */
#include "layers/kernels/gemm/gemm.h"
#include "spmd/device/offload.h"

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    (void)gemm, (void)error; /* nothing to prepare */
    return SL_OK;
}

static void release(struct sl_gemm *gemm) { (void)gemm; }

/* Returns element I of an operand. Callers pass constant types, so that each has its own loops. */
SL_INLINE float at(const void *operand, enum sl_dtype dtype, size_t i) {
    return sl_load_float(sl_f32_or_bf16(dtype), operand, i);
}

enum { ABREAST = 4 }; /* rows of op(B) per pass over a row of C: added one by one, as in four passes */

/* row [n] += row of A [k] op(B); A's elements begin at FIRST and are STRIDE apart, op(B)'s rows begin NEXT_ROW apart
 * and have elements COLUMN apart. */
SL_INLINE void multiply_row(enum sl_dtype type_a, enum sl_dtype type_b, size_t n, size_t k, const void *a, size_t first,
                            size_t stride, const void *b, size_t next_row, size_t column, float *row) {
    size_t l = 0;
    for (; l + ABREAST <= k; l += ABREAST) {
        const size_t at_a = first + l * stride, at_b = l * next_row;
        const float x0 = at(a, type_a, at_a), x1 = at(a, type_a, at_a + stride);
        const float x2 = at(a, type_a, at_a + 2 * stride), x3 = at(a, type_a, at_a + 3 * stride);
        SL_LANES()
        for (size_t j = 0; j < n; j++) {
            const size_t i = at_b + j * column;
            float sum = row[j] + x0 * at(b, type_b, i);
            sum += x1 * at(b, type_b, i + next_row);
            sum += x2 * at(b, type_b, i + 2 * next_row);
            row[j] = sum + x3 * at(b, type_b, i + 3 * next_row);
        }
    }
    for (; l < k; l++) {
        const float x = at(a, type_a, first + l * stride);
        SL_LANES()
        for (size_t j = 0; j < n; j++) row[j] += x * at(b, type_b, l * next_row + j * column);
    }
}

/* Multiplies A and B of these types. */
SL_INLINE void multiply(enum sl_dtype type_a, enum sl_dtype type_b, const struct sl_gemm *gemm,
                        const struct sl_gemm_arrays *arrays) {
    const size_t m = (size_t)arrays->count * (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const size_t next_row = gemm->transpose_a ? 1 : k, next_column = gemm->transpose_a ? m : 1; /* in op(A) */
    const bool adds_bias = gemm->epilogue == SL_EPILOGUE_BIAS, transposed = gemm->transpose_b;
    const void *a = arrays->a.at, *b = arrays->b.at;
    const float *bias = arrays->bias.at, *x = arrays->x.at;
    float *c = arrays->c.rows.at;
    uint16_t *stored = arrays->c.copy.at;
    const bool accumulate = x == c, adds = x && !accumulate, rounds = arrays->c.rounds;
    SL_ROWS(is_device_ptr(a, b, bias, x, c, stored))
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * n;
        SL_LANES()
        for (size_t j = 0; j < n; j++) row[j] = adds_bias ? bias[j] : accumulate ? row[j] : 0.0f;
        if (transposed)
            multiply_row(type_a, type_b, n, k, a, i * next_row, next_column, b, 1, k, row);
        else
            multiply_row(type_a, type_b, n, k, a, i * next_row, next_column, b, n, 1, row);
        const size_t added = adds ? (i + 1) * n : 0, end = rounds ? (i + 1) * n : 0;
        SL_LANES()
        for (size_t j = i * n; j < added; j++) c[j] += x[j];
        SL_LANES()
        for (size_t j = i * n; j < end; j++) sl_settle(c, stored, j);
    }
}

static bool widens(const struct sl_gemm *gemm) {
    (void)gemm;
    return true;
}

static int execute(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    (void)queue;
    if (arrays->a.type == SL_BF16)
        multiply(SL_BF16, SL_BF16, gemm, arrays);
    else if (arrays->b.type == SL_BF16)
        multiply(SL_F32, SL_BF16, gemm, arrays);
    else
        multiply(SL_F32, SL_F32, gemm, arrays);
    return SL_OK;
}

const struct sl_gemm_backend sl_gemm_reference = {.name = "reference",
                                                  .on_device = true,
                                                  .settles = true,
                                                  .adds = true,
                                                  .plan = plan,
                                                  .execute = execute,
                                                  .widens = widens,
                                                  .release = release};
