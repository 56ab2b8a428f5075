/* layer_norm_internal.h - the kernels of layer norms (norms.h); norms.c includes it. */
#ifndef SL_LAYERS_KERNELS_NORMS_LAYER_NORM_INTERNAL_H
#define SL_LAYERS_KERNELS_NORMS_LAYER_NORM_INTERNAL_H

#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "layers/kernels/loops/slices_internal.h"
#include "spmd/base/numbers/as_left_internal.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

/* ---- forward ---- */

/* Computes row R, inside SL_ROWS. Callers pass constants for the type of x (HALF) and of normalized (HALVES), and, on
 * hosts, for the form of y. */
SL_INLINE void layer_row(size_t r, size_t cols, const void *x, const bool half, const float *scale, const float *bias,
                         float epsilon, const bool halves, const bool floats, const bool rounds, const bool stores,
                         void *normalized, float *rstd, float *y, uint16_t *stored) {
    const size_t at = r * cols;
    float sum = 0.0f, squares = 0.0f;
    SL_LANES(reduction(+ : sum, squares))
    for (size_t c = 0; c < cols; c++) {
        sum += element(x, half, at + c);
        squares += element(x, half, at + c) * element(x, half, at + c);
    }
    const float mean = sum / (float)cols, difference = squares / (float)cols - mean * mean;
    const float variance = difference < 0.0f ? 0.0f : difference; /* a NaN remains a NaN */
    const float reciprocal = 1.0f / sl_sqrt(variance + epsilon);
    SL_LANES()
    for (size_t c = 0; c < cols; c++) {
        const float unit = (element(x, half, at + c) - mean) * reciprocal, value = unit * scale[c] + bias[c];
        if (halves)
            ((uint16_t *)normalized)[at + c] = sl_bf16_of_float(unit);
        else
            ((float *)normalized)[at + c] = unit;
        if (stores) stored[at + c] = sl_bf16_of_float(value);
        if (floats) y[at + c] = rounds ? sl_bf16_part(value) : value;
    }
    rstd[r] = reciprocal;
}

#define FLOATS_FORWARD(NAME, TYPE, FLOATS)                                                                             \
    static void NAME(size_t rows, size_t cols, const float *x, const float *scale, const float *bias, float epsilon,   \
                     float *normalized, float *rstd, TYPE *y) {                                                        \
        SL_ROWS(is_device_ptr(x, scale, bias, normalized, rstd, y))                                                    \
        for (size_t r = 0; r < rows; r++)                                                                              \
            layer_row(r, cols, x, false, scale, bias, epsilon, false, FLOATS, false, !FLOATS, normalized, rstd,        \
                      FLOATS ? (float *)y : NULL, FLOATS ? NULL : (uint16_t *)y);                                      \
    }
FLOATS_FORWARD(layer_norm_forward, float, true)
FLOATS_FORWARD(layer_norm_rounded, uint16_t, false)
#undef FLOATS_FORWARD

#define FORWARD(NAME, HALF)                                                                                            \
    SL_INLINE void NAME(const bool floats, const bool rounds, const bool stores, size_t rows, size_t cols,             \
                        const void *x, const float *scale, const float *bias, float epsilon, uint16_t *normalized,     \
                        float *rstd, float *y, uint16_t *stored) {                                                     \
        SL_ROWS(is_device_ptr(x, scale, bias, normalized, rstd, y, stored))                                            \
        for (size_t r = 0; r < rows; r++)                                                                              \
            layer_row(r, cols, x, HALF, scale, bias, epsilon, true, floats, rounds, stores, normalized, rstd, y,       \
                      stored);                                                                                         \
    }
FORWARD(whole_layer_norm_forward, false)
FORWARD(whole_layer_norm_forward_half, true)
#undef FORWARD

static void forward_layer_norm(size_t rows, size_t cols, struct sl_rows x, const float *scale, const float *bias,
                               float epsilon, struct sl_rows normalized, float *rstd, struct sl_out y) {
    float *floats = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
#define OF_FLOATS(...)                                                                                                 \
    whole_layer_norm_forward(__VA_ARGS__, rows, cols, x.at, scale, bias, epsilon, normalized.at, rstd, floats, stored)
#define OF_HALVES(...)                                                                                                 \
    whole_layer_norm_forward_half(__VA_ARGS__, rows, cols, x.at, scale, bias, epsilon, normalized.at, rstd, floats,    \
                                  stored)
    if (normalized.type == SL_F32 && floats)
        layer_norm_forward(rows, cols, x.at, scale, bias, epsilon, normalized.at, rstd, floats);
    else if (normalized.type == SL_F32)
        layer_norm_rounded(rows, cols, x.at, scale, bias, epsilon, normalized.at, rstd, stored);
    else if (x.type == SL_BF16)
        SL_AS_LEFT(OF_HALVES, floats, y.rounds, stored);
    else
        SL_AS_LEFT(OF_FLOATS, floats, y.rounds, stored);
#undef OF_FLOATS
#undef OF_HALVES
}

/* ---- backward ---- */

/* Computes row R of dx = rstd (g - mean(g) - normalized mean(g normalized)), g = dy scale, inside SL_ROWS. It adds
 * SUMMAND if ADDS, HALF_SUMMAND if ADDS_HALVES. FLOATS, ROUNDS and STORES choose the form of dx. */
SL_INLINE void layer_row_backward(size_t r, size_t cols, const void *dy, const bool half_dy, const void *normalized,
                                  const bool half, const float *rstd, const float *scale, const bool adds,
                                  const float *summand, const bool adds_halves, const uint16_t *half_summand,
                                  const bool floats, const bool rounds, const bool stores, float *dx,
                                  uint16_t *stored) {
    const size_t at = r * cols;
    float sum = 0.0f, projection = 0.0f;
    SL_LANES(reduction(+ : sum, projection))
    for (size_t c = 0; c < cols; c++) {
        const float g = any_gradient(dy, half_dy, half, at + c) * scale[c];
        sum += g;
        projection += g * element(normalized, half, at + c);
    }
    const float mean = sum / (float)cols, along = projection / (float)cols, factor = rstd[r];
    SL_LANES()
    for (size_t c = 0; c < cols; c++) {
        const float slope = any_gradient(dy, half_dy, half, at + c), unit = element(normalized, half, at + c);
        float value = factor * (slope * scale[c] - mean - unit * along);
        if (adds) value += summand[at + c];
        if (adds_halves) value += sl_float_of_bf16(half_summand[at + c]);
        if (stores) stored[at + c] = sl_bf16_of_float(value);
        if (floats) dx[at + c] = rounds ? sl_bf16_part(value) : value;
    }
}

/* Callers pass a constant ADDS, so that each case has its own loops. */
SL_INLINE void layer_norm_backward_input(size_t rows, size_t cols, const float *dy, const float *normalized,
                                         const float *rstd, const float *scale, const bool adds, const float *summand,
                                         float *dx) {
    SL_ROWS(is_device_ptr(dy, normalized, rstd, scale, summand, dx))
    for (size_t r = 0; r < rows; r++)
        layer_row_backward(r, cols, dy, false, normalized, false, rstd, scale, adds, summand, false, NULL, true, false,
                           false, dx, NULL);
}

#define BACKWARD(NAME, HALF_DY, HALF)                                                                                  \
    static void NAME(size_t rows, size_t cols, const void *dy, const void *normalized, const float *rstd,              \
                     const float *scale, const float *summand, const uint16_t *half_summand, bool rounds, float *dx,   \
                     uint16_t *stored) {                                                                               \
        SL_ROWS(is_device_ptr(dy, normalized, rstd, scale, summand, half_summand, dx, stored))                         \
        for (size_t r = 0; r < rows; r++)                                                                              \
            layer_row_backward(r, cols, dy, HALF_DY, normalized, HALF, rstd, scale, summand, summand,                  \
                               HALF &&half_summand, half_summand, dx, rounds, stored, dx, stored);                     \
    }
BACKWARD(whole_layer_norm_backward, false, false)
BACKWARD(whole_layer_norm_backward_kept, false, true)
BACKWARD(whole_layer_norm_backward_half, true, true)
#undef BACKWARD

/* For PARTS parts of ROWS rows: dscale [parts, cols] = sums of dy normalized over a part's rows, dbias [parts, cols] =
 * sums of dy. HALF, HALF_DY: as in any_gradient; constants on hosts. */
SL_INLINE void layer_norm_backward_weight(size_t parts, size_t rows, size_t cols, const void *dy, const bool half_dy,
                                          const void *normalized, const bool half, float *dscale, float *dbias) {
    const size_t groups = column_groups(cols), stripes = stripes_of(rows, cols);
    float *const all_scale = stripes > 1 ? sl_device.room() : dscale;
    float *const all_bias = stripes > 1 ? all_scale + parts * stripes * cols : dbias;
    SL_ROWS(is_device_ptr(dy, normalized, all_scale, all_bias))
    for (size_t g = 0; g < parts * stripes * groups; g++) {
        const struct stripe stripe = stripe_of(rows, stripes, g / groups);
        const size_t group = g % groups * SL_COLUMNS, at = g / groups * cols;
        float scales[SLICE_SUMS], biases[SLICE_SUMS], *to_scale = all_scale + at, *to_bias = all_bias + at;
        SL_THREADS()
        for (size_t t = 0; t < SLICE_THREADS; t++) {
            const struct slice s = slice_of(stripe.count, cols, group, t);
            if (s.first >= cols) continue;
            float scale[SL_BLOCK], bias[SL_BLOCK], *left_scale = slice_sums(scales, to_scale, t, s.first);
            float *left_bias = slice_sums(biases, to_bias, t, s.first);
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) scale[c] = bias[c] = 0.0f;
            for (size_t r = s.begin; r < s.end; r++) {
                const size_t first = (stripe.first + r) * cols + s.first;
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++) {
                    const float slope = any_gradient(dy, half_dy, half, first + c);
                    scale[c] += slope * element(normalized, half, first + c);
                    bias[c] += slope;
                }
            }
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) {
                left_scale[c] = scale[c];
                left_bias[c] = bias[c];
            }
        }
        add_slices(scales, cols, group, to_scale);
        add_slices(biases, cols, group, to_bias);
    }
    if (stripes == 1) return;
    add_stripes(parts, stripes, cols, all_scale, false, dscale);
    add_stripes(parts, stripes, cols, all_bias, false, dbias);
}

/* Computes dx of all rows. */
static void layer_norm_backward_rows(size_t rows, size_t cols, struct sl_rows dy, struct sl_rows normalized,
                                     const float *rstd, const float *scale, struct sl_rows summand, struct sl_out dx) {
    const float *added = summand.type == SL_F32 ? summand.at : NULL;
    const uint16_t *half = summand.type == SL_BF16 ? summand.at : NULL;
    float *floats = sl_out_floats(dx);
    uint16_t *halves = sl_out_halves(dx);
    if (normalized.type == SL_BF16 || halves || dx.rounds)
        (dy.type == SL_BF16           ? whole_layer_norm_backward_half
         : normalized.type == SL_BF16 ? whole_layer_norm_backward_kept
                                      : whole_layer_norm_backward)(rows, cols, dy.at, normalized.at, rstd, scale, added,
                                                                   half, dx.rounds, floats, halves);
    else if (added)
        layer_norm_backward_input(rows, cols, dy.at, normalized.at, rstd, scale, true, added, floats);
    else
        layer_norm_backward_input(rows, cols, dy.at, normalized.at, rstd, scale, false, NULL, floats);
}

static void backward_layer_norm(size_t parts, size_t rows, size_t cols, struct sl_rows dy, struct sl_rows normalized,
                                const float *rstd, const float *scale, struct sl_rows summand, struct sl_out dx,
                                float *dscale, float *dbias) {
    const size_t most = !dscale ? parts : SL_TOGETHER ? parts_at_once(parts, rows, cols, 2) : 1;
    for (size_t part = 0, count; part < parts; part += count) {
        const size_t row = part * rows, at = row * cols;
        const struct sl_rows own_dy = sl_rows_from(dy, at), own = sl_rows_from(normalized, at);
        count = most < parts - part ? most : parts - part;
        layer_norm_backward_rows(count * rows, cols, own_dy, own, rstd + row, scale, sl_rows_from(summand, at),
                                 sl_out_from(dx, at));
        if (dscale)
            layer_norm_backward_weight(count, rows, cols, own_dy.at, own_dy.type == SL_BF16, own.at,
                                       own.type == SL_BF16, dscale + part * cols, dbias + part * cols);
    }
}

#endif
