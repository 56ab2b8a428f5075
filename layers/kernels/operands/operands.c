/* operands.c - results that products alone read, built as kernels.c is.
 *
 * The build defines SL_OPERAND_KERNELS, the table's name. */
#include "layers/kernels/operands/operands.h"
#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

#include <math.h>

enum {
    ABREAST = 32, /* elements at a time where each is one long chain: several vectors hide its latency */
};

static void multiply_rounded(size_t n, const float *a, const float *b, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(a, b, y))
    for (size_t i = 0; i < n; i++) y[i] = sl_bf16_of_float(a[i] * b[i]);
}

/* The caller passes a constant MASKED, as in kernels.c. */
static inline void silu_rounded(size_t n, const float *x, bool masked, const uint32_t *words, uint32_t threshold,
                                float gain, uint16_t *y, float *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, words, y, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++) {
        const float factor = !masked || words[i] >> 9 < threshold ? gain : 0.0f, v = x[i], s = sl_sigmoid(v);
        y[i] = sl_bf16_of_float(factor * (v * s));
        slope[i] = factor * (s * (1.0f + v * (1.0f - s)));
    }
}

static void silu_dropout_forward(size_t n, const float *x, const uint32_t *words, uint32_t threshold, float keep,
                                 uint16_t *y, float *slope) {
    if (words)
        silu_rounded(n, x, true, words, threshold, 1.0f / keep, y, slope);
    else
        silu_rounded(n, x, false, NULL, 0, 1.0f, y, slope);
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
        const float reciprocal = 1.0f / sqrtf(variance + epsilon);
        SL_LANES()
        for (size_t c = 0; c < cols; c++) {
            const float value = (in[c] - mean) * reciprocal;
            unit[c] = value;
            out[c] = sl_bf16_of_float(value * scale[c] + bias[c]);
        }
        rstd[r] = reciprocal;
    }
}

const struct sl_operand_kernels SL_OPERAND_KERNELS = {.layer_norm_forward = layer_norm_rounded,
                                                      .multiply = multiply_rounded,
                                                      .silu_dropout_forward = silu_dropout_forward};
