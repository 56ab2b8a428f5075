/* operands.c - kernels with results in the next kernel's input form; built as kernels.c is.
 *
 * The build defines SL_OPERAND_KERNELS, the table's name. */
#include "layers/kernels/operands/operands.h"
#include "layers/kernels/loops/fours_internal.h"
#include "spmd/base/numbers/as_left_internal.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

#include <math.h>

enum {
    ABREAST = 32, /* elements at a time, in several vectors: these hide the latency of an element's long chain */
};

/* ---- silu and dropout ---- */

/* Elements from I on. Callers pass constants for the types of x and slope (HALF, HALVES) and the form of y; device code
 * tests them once for all elements of a thread. */
SL_INLINE void silu_few(const size_t count, size_t i, const bool half, const bool halves, const bool floats,
                        const bool rounds, const bool stores, const void *x, float *y, uint16_t *stored, void *slope) {
    const few_floats in = load_elements(count, half, x, i);
    few_floats out = in, slopes = in;
    for (size_t k = 0; k < count; k++) {
        const float v = OF(in, k), s = sl_sigmoid(v);
        OF(out, k) = v * s;
        OF(slopes, k) = s * (1.0f + v * (1.0f - s));
    }
    leave_few(count, i, out, floats, rounds, stores, y, stored);
    if (halves)
        store_halves(count, round_floats(count, slopes), (uint16_t *)slope + i);
    else
        store_floats(count, slopes, (float *)slope + i);
}

static void silu_f32(size_t n, const float *x, float *y, float *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, y, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(silu_few, i, n, FLOATS_AT(x + i) | FLOATS_AT(y + i) | FLOATS_AT(slope + i), false, false, true,
                   false, false, x, y, NULL, slope);
}

static void silu_rounded(size_t n, const float *x, uint16_t *y, float *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, y, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(silu_few, i, n, FLOATS_AT(x + i) | HALVES_AT(y + i) | FLOATS_AT(slope + i), false, false, false,
                   true, true, x, NULL, y, slope);
}

SL_INLINE void silu_kept_of(size_t n, const bool half, const bool floats, const bool rounds, const bool stores,
                            const void *x, float *y, uint16_t *stored, uint16_t *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, y, stored, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(silu_few, i, n, ELEMENTS_AT(half, x) | FLOATS_AT(y) | HALVES_AT(stored) | HALVES_AT(slope), half,
                   true, floats, rounds, stores, x, y, stored, slope);
}

static void silu(size_t n, struct sl_rows x, struct sl_out y, struct sl_rows slope) {
    float *floats = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
#define OF_HALVES(...) silu_kept_of(n, true, __VA_ARGS__, x.at, floats, stored, slope.at)
#define OF_FLOATS(...) silu_kept_of(n, false, __VA_ARGS__, x.at, floats, stored, slope.at)
    if (slope.type == SL_F32 && floats)
        silu_f32(n, x.at, floats, slope.at);
    else if (slope.type == SL_F32)
        silu_rounded(n, x.at, stored, slope.at);
    else if (x.type == SL_BF16)
        SL_AS_LEFT(OF_HALVES, floats, y.rounds, stored);
    else
        SL_AS_LEFT(OF_FLOATS, floats, y.rounds, stored);
#undef OF_HALVES
#undef OF_FLOATS
}

/* The mask is a factor: for a choice, compilers would put the arithmetic behind a branch. */
SL_INLINE void dropout_of(size_t n, const bool silu, const bool halves, const bool floats, const bool rounds,
                          const bool stores, const float *x, const uint32_t *words, uint32_t threshold, float gain,
                          float *y, uint16_t *stored, void *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, words, y, stored, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++) {
        const float factor = words[i] >> 9 < threshold ? gain : 0.0f, v = x[i], s = silu ? sl_sigmoid(v) : 1.0f;
        const float value = silu ? factor * (v * s) : factor * v;
        const float derivative = silu ? factor * (s * (1.0f + v * (1.0f - s))) : factor;
        const uint16_t rounded = sl_bf16_of_float(value);
        if (stores) stored[i] = rounded;
        if (floats) y[i] = rounds ? sl_float_of_bf16(rounded) : value;
        if (halves)
            ((uint16_t *)slope)[i] = sl_bf16_of_float(derivative);
        else
            ((float *)slope)[i] = derivative;
    }
}

static void dropout(size_t n, bool silu, struct sl_rows x, const uint32_t *words, uint32_t threshold, float keep,
                    struct sl_out y, struct sl_rows slope) {
    const float gain = 1.0f / keep; /* a factor, as XLA turns division by a constant into one */
    float *floats = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
#define DROP(...) dropout_of(n, __VA_ARGS__, x.at, words, threshold, gain, floats, stored, slope.at)
#define WITH_SILU(...) DROP(true, true, __VA_ARGS__)
#define ALONE(...) DROP(false, true, __VA_ARGS__)
    if (slope.type == SL_F32 && silu)
        DROP(true, false, true, false, false);
    else if (slope.type == SL_F32)
        DROP(false, false, true, false, false);
    else if (silu)
        SL_AS_LEFT(WITH_SILU, floats, y.rounds, stored);
    else
        SL_AS_LEFT(ALONE, floats, y.rounds, stored);
#undef DROP
#undef WITH_SILU
#undef ALONE
}

/* ---- products ---- */

/* Product of floats. FLOATS is a constant. */
SL_INLINE void multiply_few(const size_t count, size_t i, const bool floats, const float *a, const float *b, float *y,
                            uint16_t *stored) {
    const few_floats one = load_floats(count, a + i);
    few_floats other = load_floats(count, b + i);
    for (size_t k = 0; k < count; k++) OF(other, k) = OF(one, k) * OF(other, k);
    leave_few(count, i, other, floats, false, !floats, y, stored);
}

static void multiply_elements(size_t n, const float *a, const float *b, float *y) {
    SL_ELEMENTWISE(is_device_ptr(a, b, y))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_few, i, n, FLOATS_AT(a + i) | FLOATS_AT(b + i) | FLOATS_AT(y + i), true, a, b, y, NULL);
}

static void multiply_rounded(size_t n, const float *a, const float *b, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(a, b, y))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_few, i, n, FLOATS_AT(a + i) | FLOATS_AT(b + i) | HALVES_AT(y + i), false, a, b, NULL, y);
}

/* Multiplies by slopes that are saved as bf16. */
SL_INLINE void multiply_kept_few(const size_t count, size_t i, const bool half, const bool floats, const bool rounds,
                                 const bool stores, const void *dy, const uint16_t *slope, float *dx,
                                 uint16_t *stored) {
    const few_floats factors = widen_halves(count, load_halves(count, slope + i));
    few_floats values = load_elements(count, half, dy, i);
    if (!half) values = widen_halves(count, round_floats(count, values));
    for (size_t k = 0; k < count; k++) OF(values, k) = OF(values, k) * OF(factors, k);
    leave_few(count, i, values, floats, rounds, stores, dx, stored);
}

SL_INLINE void multiply_kept_of(size_t n, const bool half, const bool floats, const bool rounds, const bool stores,
                                const void *dy, const uint16_t *slope, float *dx, uint16_t *stored) {
    SL_ELEMENTWISE(is_device_ptr(dy, slope, dx, stored))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_kept_few, i, n,
                   ELEMENTS_AT(half, dy) | HALVES_AT(slope) | FLOATS_AT(dx) | HALVES_AT(stored), half, floats, rounds,
                   stores, dy, slope, dx, stored);
}

static void multiply(size_t n, struct sl_rows a, struct sl_rows b, struct sl_out y) {
    float *floats = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
#define OF_HALVES(...) multiply_kept_of(n, true, __VA_ARGS__, a.at, b.at, floats, stored)
#define OF_FLOATS(...) multiply_kept_of(n, false, __VA_ARGS__, a.at, b.at, floats, stored)
    if (b.type == SL_F32 && floats)
        multiply_elements(n, a.at, b.at, floats);
    else if (b.type == SL_F32)
        multiply_rounded(n, a.at, b.at, stored);
    else if (a.type == SL_BF16)
        SL_AS_LEFT(OF_HALVES, floats, y.rounds, stored);
    else
        SL_AS_LEFT(OF_FLOATS, floats, y.rounds, stored);
#undef OF_HALVES
#undef OF_FLOATS
}

const struct sl_operand_kernels SL_OPERAND_KERNELS = {.multiply = multiply, .silu = silu, .dropout = dropout};
