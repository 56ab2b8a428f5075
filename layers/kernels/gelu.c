/* gelu.c - gelu in its tanh form (Hendrycks & Gimpel 2016), and its VJP, built as kernels.c is.
 *
 * The build defines SL_GELU_FORWARD, SL_GELU_BACKWARD, and both with _BF16, _ROUNDED and _STORED behind them, the
 * functions' names, and lets the compiler fuse a * b + c: arithmetic takes longer here than memory does. */
#include "layers/kernels/sequence.h"
#include "layers/kernels/rows/fetch_internal.h"
#include "spmd/device/offload.h"
#include "spmd/base/bf16.h"
#include "spmd/base/vector_math.h"

enum {
    ABREAST = 32, /* elements at a time where each is one long chain: several vectors hide its latency */
};

/* 1/2 (1 + tanh z) is s = sigmoid(2 z), which keeps its digits where it is close to 0, and 1 - s = s exp(-2 z) those
 * where s is close to 1. Beyond GELU_BOUND, where exp2 has exp(2 z) and exp(-2 z) still, y is 0 or x but for 2e-37. */
#define GELU_BOUND 10.0f
static const float gelu_linear = 1.59576912f, gelu_cubic = 0.0713548163f; /* sqrt(8 / pi), times 0.044715 */

/* A NaN stays. */
SL_INLINE float gelu_above(float x) { return x < -GELU_BOUND ? -GELU_BOUND : x; }
SL_INLINE float gelu_below(float x) { return x > GELU_BOUND ? GELU_BOUND : x; }

/* exp(-2 z) */
SL_INLINE float gelu_power(float x) {
    const float linear = 2.30220819f, cubic = 0.102943241f; /* the two above by log2(e) */
    return sl_exp2(-x * (linear + cubic * (x * x)));
}

SL_INLINE float gelu_of(float x) {
    const float value = gelu_above(x), s = 1.0f / (1.0f + gelu_power(gelu_below(value)));
    return value * s;
}

SL_INLINE float gelu_slope(float x) {
    const float v = gelu_below(gelu_above(x)), e = gelu_power(v), s = 1.0f / (1.0f + e);
    return s * (1.0f + v * (e * s) * (gelu_linear + 3.0f * gelu_cubic * (v * v)));
}

/* ---- floats ---- */

void SL_GELU_FORWARD(size_t n, const float *x, float *y) {
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SL_PIECE ? n : first + SL_PIECE;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch(x, end, next);
        fetch_to_write(y, end, next);
        SL_ELEMENTWISE(is_device_ptr(x, y), simdlen(ABREAST))
        for (size_t i = first; i < end; i++) y[i] = gelu_of(x[i]);
    }
}

void SL_GELU_BACKWARD(size_t n, const float *x, const float *dy, float *dx) {
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SL_PIECE ? n : first + SL_PIECE;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch(x, end, next);
        fetch(dy, end, next);
        fetch_to_write(dx, end, next);
        SL_ELEMENTWISE(is_device_ptr(x, dy, dx), simdlen(ABREAST))
        for (size_t i = first; i < end; i++) dx[i] = dy[i] * gelu_slope(x[i]);
    }
}

/* ---- what products alone read ---- */

void SL_GELU_FORWARD_ROUNDED(size_t n, const float *x, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(x, y), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++) y[i] = sl_bf16_of_float(gelu_of(x[i]));
}

void SL_GELU_BACKWARD_ROUNDED(size_t n, const float *x, const float *dy, uint16_t *dx) {
    SL_ELEMENTWISE(is_device_ptr(x, dy, dx), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++) dx[i] = sl_bf16_of_float(dy[i] * gelu_slope(x[i]));
}

/* ---- what is stored as bf16 ---- */

/* With FLOATS as a constant, so that loops have no choice: whether what is stored is wanted as floats, too. */
SL_INLINE void forward_bf16(size_t n, const float *x, uint16_t *x_stored, const bool floats, float *y,
                            uint16_t *y_stored) {
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SL_PIECE ? n : first + SL_PIECE;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch(x, end, next);
        fetch_half_to_write(x_stored, end, next);
        if (floats) fetch_to_write(y, end, next);
        fetch_half_to_write(y_stored, end, next);
        SL_ELEMENTWISE(is_device_ptr(x, x_stored, y, y_stored), simdlen(ABREAST))
        for (size_t i = first; i < end; i++) {
            const uint16_t half = sl_bf16_of_float(x[i]), result = sl_bf16_of_float(gelu_of(sl_float_of_bf16(half)));
            x_stored[i] = half;
            y_stored[i] = result;
            if (floats) y[i] = sl_float_of_bf16(result);
        }
    }
}

void SL_GELU_FORWARD_BF16(size_t n, const float *x, uint16_t *x_stored, float *y, uint16_t *y_stored) {
    if (y)
        forward_bf16(n, x, x_stored, true, y, y_stored);
    else
        forward_bf16(n, x, x_stored, false, NULL, y_stored);
}

SL_INLINE void backward_bf16(size_t n, const uint16_t *x, const float *dy, const bool floats, float *dx,
                             uint16_t *dx_stored) {
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SL_PIECE ? n : first + SL_PIECE;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch_half(x, end, next);
        fetch(dy, end, next);
        if (floats) fetch_to_write(dx, end, next);
        fetch_half_to_write(dx_stored, end, next);
        SL_ELEMENTWISE(is_device_ptr(x, dy, dx, dx_stored), simdlen(ABREAST))
        for (size_t i = first; i < end; i++) {
            const uint16_t result = sl_bf16_of_float(sl_bf16_part(dy[i]) * gelu_slope(sl_float_of_bf16(x[i])));
            if (floats) dx[i] = sl_float_of_bf16(result);
            dx_stored[i] = result;
        }
    }
}

void SL_GELU_BACKWARD_BF16(size_t n, const uint16_t *x, const float *dy, float *dx, uint16_t *dx_stored) {
    if (dx)
        backward_bf16(n, x, dy, true, dx, dx_stored);
    else
        backward_bf16(n, x, dy, false, NULL, dx_stored);
}

/* ---- of what a product has left as bf16 ---- */

void SL_GELU_FORWARD_STORED(size_t n, const uint16_t *x, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(x, y), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++) y[i] = sl_bf16_of_float(gelu_of(sl_float_of_bf16(x[i])));
}

void SL_GELU_BACKWARD_STORED(size_t n, const uint16_t *x, uint16_t *dx) {
    SL_ELEMENTWISE(is_device_ptr(x, dx), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++)
        dx[i] = sl_bf16_of_float(sl_float_of_bf16(dx[i]) * gelu_slope(sl_float_of_bf16(x[i])));
}
