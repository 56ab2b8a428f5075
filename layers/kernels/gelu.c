/* gelu.c - gelu in its tanh form (Hendrycks & Gimpel 2016), and its VJP, built as kernels.c is.
 *
 * The build defines SL_GELU_FORWARD and SL_GELU_BACKWARD, the functions' names, and lets the compiler fuse a * b + c:
 * arithmetic takes longer here than memory does. */
#include "layers/kernels/sequence.h"
#include "layers/kernels/fetch_internal.h"
#include "spmd/device/offload.h"
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

void SL_GELU_FORWARD(size_t n, const float *x, float *y) {
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SL_PIECE ? n : first + SL_PIECE;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch(x, end, next);
        fetch_to_write(y, end, next);
        SL_ELEMENTWISE(is_device_ptr(x, y), simdlen(ABREAST))
        for (size_t i = first; i < end; i++) {
            const float value = gelu_above(x[i]), s = 1.0f / (1.0f + gelu_power(gelu_below(value)));
            y[i] = value * s;
        }
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
        for (size_t i = first; i < end; i++) {
            const float v = gelu_below(gelu_above(x[i])), e = gelu_power(v), s = 1.0f / (1.0f + e);
            dx[i] = dy[i] * (s * (1.0f + v * (e * s) * (gelu_linear + 3.0f * gelu_cubic * (v * v))));
        }
    }
}
