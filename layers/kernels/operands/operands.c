/* operands.c - results that products alone read, built as kernels.c is.
 *
 * The build defines SL_OPERAND_KERNELS, the table's name. */
#include "layers/kernels/operands/operands.h"
#include "layers/kernels/operands/fours_internal.h"
#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

#include <math.h>

enum {
    ABREAST = 32, /* elements at a time where each is one long chain: several vectors hide its latency */
};

SL_INLINE void multiply_few(const size_t count, size_t i, const float *a, const float *b, uint16_t *y) {
    const few_floats one = load_floats(count, a + i);
    few_floats other = load_floats(count, b + i);
    for (size_t k = 0; k < count; k++) OF(other, k) = OF(one, k) * OF(other, k);
    store_halves(count, round_floats(count, other), y + i);
}

static void multiply_rounded(size_t n, const float *a, const float *b, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(a, b, y))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_few, i, n, FLOATS_AT(a + i) | FLOATS_AT(b + i) | HALVES_AT(y + i), a, b, y);
}

SL_INLINE void silu_few(const size_t count, size_t i, const float *x, uint16_t *y, float *slope) {
    const few_floats in = load_floats(count, x + i);
    few_floats out = in, slopes = in;
    for (size_t k = 0; k < count; k++) {
        const float v = OF(in, k), s = sl_sigmoid(v);
        OF(out, k) = v * s;
        OF(slopes, k) = s * (1.0f + v * (1.0f - s));
    }
    store_halves(count, round_floats(count, out), y + i);
    store_floats(count, slopes, slope + i);
}

static void silu_rounded(size_t n, const float *x, uint16_t *y, float *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, y, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(silu_few, i, n, FLOATS_AT(x + i) | HALVES_AT(y + i) | FLOATS_AT(slope + i), x, y, slope);
}

static void layer_norm_rounded(size_t rows, size_t cols, const float *x, const float *scale, const float *bias,
                               float epsilon, float *normalized, float *rstd, uint16_t *y) {
    SL_ROWS(is_device_ptr(x, scale, bias, normalized, rstd, y))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float *unit = normalized + r * cols, sum = 0.0f, squares = 0.0f;
        uint16_t *out = y + r * cols;
        SL_LANES(reduction(+ : sum, squares))
        for (size_t c = 0; c < cols; c++) {
            sum += in[c];
            squares += in[c] * in[c];
        }
        const float mean = sum / (float)cols, difference = squares / (float)cols - mean * mean;
        const float variance = difference < 0.0f ? 0.0f : difference; /* a NaN stays */
        const float reciprocal = 1.0f / sl_sqrt(variance + epsilon);
        SL_LANES()
        for (size_t c = 0; c < cols; c++) {
            const float value = (in[c] - mean) * reciprocal;
            unit[c] = value;
            out[c] = sl_bf16_of_float(value * scale[c] + bias[c]);
        }
        rstd[r] = reciprocal;
    }
}

const struct sl_operand_kernels SL_OPERAND_KERNELS = {
    .layer_norm_forward = layer_norm_rounded, .multiply = multiply_rounded, .silu_forward = silu_rounded};
