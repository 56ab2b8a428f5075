/* gelu.c - gelu in its tanh form (Hendrycks & Gimpel 2016), and its VJP, built as kernels.c is.
 *
 * Each combination of types has its own function, so its loop has no branches. The build defines SL_GELU_FORWARD and
 * SL_GELU_BACKWARD, the names of the two functions that choose, and lets the compiler fuse a * b + c: here arithmetic
 * takes longer than memory. */
#include "layers/kernels/sequence.h"
#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/fetch_internal.h"
#include "spmd/device/offload.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/vector_math.h"

enum {
    ABREAST = 32, /* elements at a time, in several vectors: these hide the latency of an element's long chain */
};

/* 1/2 (1 + tanh z) is s = sigmoid(2 z), which is accurate near 0; 1 - s = s exp(-2 z) is accurate where s is near 1. At
 * GELU_BOUND exp2 can still compute exp(2 z) and exp(-2 z); beyond it y differs from 0 or x by 2e-37 at most. */
#define GELU_BOUND 10.0f
static const float gelu_linear = 1.59576912f, gelu_cubic = 0.0713548163f; /* sqrt(8 / pi), times 0.044715 */

/* A NaN remains a NaN. */
SL_INLINE float gelu_above(float x) { return x < -GELU_BOUND ? -GELU_BOUND : x; }
SL_INLINE float gelu_below(float x) { return x > GELU_BOUND ? GELU_BOUND : x; }

/* exp(-2 z) */
SL_INLINE float gelu_power(float x) {
    const float linear = 2.30220819f, cubic = 0.102943241f; /* the two above times log2(e) */
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

/* Functions of one element. Callers pass constants: the types of the inputs, and the presence of optional outputs. */

/* Writes VALUE to element I of y (FLOATS) and of STORED (STORES); with STORES, y is rounded. */
SL_INLINE void leave(size_t i, float value, const bool floats, const bool stores, float *y, uint16_t *stored) {
    const uint16_t rounded = sl_bf16_of_float(value);
    if (stores) stored[i] = rounded;
    if (floats) y[i] = stores ? sl_float_of_bf16(rounded) : value;
}

SL_INLINE void forward(size_t i, const enum sl_dtype type, const bool stores_x, const bool floats, const bool stores,
                       const void *x, uint16_t *x_stored, float *y, uint16_t *stored) {
    float value = sl_load_float(type, x, i);
    if (stores_x) {
        const uint16_t half = sl_bf16_of_float(value);
        x_stored[i] = half;
        value = sl_float_of_bf16(half);
    }
    leave(i, gelu_of(value), floats, stores, y, stored);
}

/* If x is bf16, floats of dy are unrounded, and are rounded here. */
SL_INLINE void backward(size_t i, const enum sl_dtype type, const enum sl_dtype dy_type, const bool floats,
                        const bool stores, const void *x, const void *dy, float *dx, uint16_t *stored) {
    float gradient = sl_load_float(dy_type, dy, i);
    if (type == SL_BF16 && dy_type == SL_F32) gradient = sl_bf16_part(gradient);
    leave(i, gradient * gelu_slope(sl_load_float(type, x, i)), floats, stores, dx, stored);
}

#define FORWARD(name, type, stores_x, floats, stores)                                                                  \
    static void name(size_t n, const void *x, uint16_t *x_stored, float *y, uint16_t *stored) {                        \
        for (size_t first = 0, end; first < n; first = end) {                                                          \
            end = n - first < SL_PIECE ? n : first + SL_PIECE;                                                         \
            const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;                                               \
            fetch_typed(type, x, end, next);                                                                           \
            if (stores_x) fetch_half_to_write(x_stored, end, next);                                                    \
            if (floats) fetch_to_write(y, end, next);                                                                  \
            if (stores) fetch_half_to_write(stored, end, next);                                                        \
            SL_ELEMENTWISE(is_device_ptr(x, x_stored, y, stored), simdlen(ABREAST))                                    \
            for (size_t i = first; i < end; i++) forward(i, type, stores_x, floats, stores, x, x_stored, y, stored);   \
        }                                                                                                              \
    }

#define BACKWARD(name, type, dy_type, floats, stores)                                                                  \
    static void name(size_t n, const void *x, const void *dy, float *dx, uint16_t *stored) {                           \
        for (size_t first = 0, end; first < n; first = end) {                                                          \
            end = n - first < SL_PIECE ? n : first + SL_PIECE;                                                         \
            const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;                                               \
            fetch_typed(type, x, end, next);                                                                           \
            fetch_typed(dy_type, dy, end, next);                                                                       \
            if (floats) fetch_to_write(dx, end, next);                                                                 \
            if (stores) fetch_half_to_write(stored, end, next);                                                        \
            SL_ELEMENTWISE(is_device_ptr(x, dy, dx, stored), simdlen(ABREAST))                                         \
            for (size_t i = first; i < end; i++) backward(i, type, dy_type, floats, stores, x, dy, dx, stored);        \
        }                                                                                                              \
    }

FORWARD(gelu_forward_f32, SL_F32, false, true, false)
FORWARD(gelu_forward_rounded, SL_F32, false, false, true)
FORWARD(gelu_forward_bf16, SL_BF16, false, false, true)
FORWARD(gelu_forward_kept, SL_F32, true, false, true)
FORWARD(gelu_forward_kept_f32, SL_F32, true, true, true)

BACKWARD(gelu_backward_f32, SL_F32, SL_F32, true, false)
BACKWARD(gelu_backward_rounded, SL_F32, SL_F32, false, true)
BACKWARD(gelu_backward_bf16, SL_BF16, SL_BF16, false, true)
BACKWARD(gelu_backward_kept, SL_BF16, SL_F32, false, true)
BACKWARD(gelu_backward_kept_f32, SL_BF16, SL_F32, true, true)

void SL_GELU_FORWARD(size_t n, struct sl_rows x, uint16_t *x_stored, struct sl_out y) {
    float *floats = sl_out_floats(y);
    (x.type == SL_BF16 ? gelu_forward_bf16
     : !x_stored       ? floats ? gelu_forward_f32 : gelu_forward_rounded
     : floats          ? gelu_forward_kept_f32
                       : gelu_forward_kept)(n, x.at, x_stored, floats, sl_out_halves(y));
}

void SL_GELU_BACKWARD(size_t n, struct sl_rows x, struct sl_rows dy, struct sl_out dx) {
    float *floats = sl_out_floats(dx);
    (x.type == SL_F32     ? floats ? gelu_backward_f32 : gelu_backward_rounded
     : dy.type == SL_BF16 ? gelu_backward_bf16
     : floats             ? gelu_backward_kept_f32
                          : gelu_backward_kept)(n, x.at, dy.at, floats, sl_out_halves(dx));
}
