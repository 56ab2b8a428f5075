/* rms_norm_internal.h - RMS norms step by step (norms.h); norms.c includes it. */
#ifndef SL_LAYERS_KERNELS_NORMS_RMS_NORM_INTERNAL_H
#define SL_LAYERS_KERNELS_NORMS_RMS_NORM_INTERNAL_H

#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/fetch_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "layers/kernels/loops/slices_internal.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

enum {
    AHEAD = 4, /* rows of prefetch distance */
};

static void square_sums(size_t rows, size_t cols, const float *x, float *sums) {
    SL_ROWS(is_device_ptr(x, sums))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float sum = 0.0f;
        SL_LANES(reduction(+ : sum))
        for (size_t c = 0; c < cols; c++) sum += in[c] * in[c];
        sums[r] = sum;
    }
}

/* Computes y of a row, inside SL_ROWS, in a form of constants. */
SL_INLINE void divide_row(size_t cols, const float *x, float reciprocal, const float *gamma, const float *beta,
                          const bool floats, const bool rounds, const bool stores, float *y, uint16_t *stored) {
    SL_LANES()
    for (size_t c = 0; c < cols; c++) {
        const float value = x[c] * reciprocal * gamma[c] + beta[c];
        if (stores) stored[c] = sl_bf16_of_float(value);
        if (floats) y[c] = rounds ? sl_bf16_part(value) : value;
    }
}

static void rms_norm_forward(size_t rows, size_t cols, size_t whole, const float *x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, float *y) {
    SL_ROWS(is_device_ptr(x, sums, gamma, beta, rstd, y))
    for (size_t r = 0; r < rows; r++) {
        const float reciprocal = 1.0f / sl_sqrt(sums[r] / (float)whole + epsilon);
        if (r + AHEAD < rows) fetch_to_write(y + r * cols, AHEAD * cols, (AHEAD + 1) * cols);
        divide_row(cols, x + r * cols, reciprocal, gamma, beta, true, false, false, y + r * cols, NULL);
        rstd[r] = reciprocal;
    }
}

static void rms_norm_forward_bf16(size_t rows, size_t cols, size_t whole, const float *x, const float *sums,
                                  const float *gamma, const float *beta, float epsilon, float *rstd, float *y,
                                  uint16_t *stored) {
    SL_ROWS(is_device_ptr(x, sums, gamma, beta, rstd, y, stored))
    for (size_t r = 0; r < rows; r++) {
        const size_t at = r * cols;
        const float reciprocal = 1.0f / sl_sqrt(sums[r] / (float)whole + epsilon);
        if (!stored)
            divide_row(cols, x + at, reciprocal, gamma, beta, true, true, false, y + at, NULL);
        else if (!y)
            divide_row(cols, x + at, reciprocal, gamma, beta, false, true, true, NULL, stored + at);
        else
            divide_row(cols, x + at, reciprocal, gamma, beta, true, true, true, y + at, stored + at);
        rstd[r] = reciprocal;
    }
}

SL_INLINE void dots_of(size_t rows, size_t parts, size_t cols, const float *dy, const void *x, const bool half,
                       const float *gamma, float *dots) {
    SL_ROWS(is_device_ptr(dy, x, gamma, dots))
    for (size_t r = 0; r < rows * parts; r++) {
        const size_t at = r * cols;
        const float *factor = gamma + r % parts * cols;
        float dot = 0.0f;
        SL_LANES(reduction(+ : dot))
        for (size_t c = 0; c < cols; c++) dot += gradient_of(dy, half, at + c) * factor[c] * element(x, half, at + c);
        dots[r] = dot;
    }
}

static void rms_norm_dots(size_t rows, size_t parts, size_t cols, const float *dy, struct sl_rows x, const float *gamma,
                          float *dots) {
    if (x.type == SL_BF16)
        dots_of(rows, parts, cols, dy, x.at, true, gamma, dots);
    else
        dots_of(rows, parts, cols, dy, x.at, false, gamma, dots);
}

SL_INLINE void backward_input_of(size_t rows, size_t cols, size_t whole, const float *dy, const void *x,
                                 const bool half, const float *rstd, const float *gamma, const float *dots,
                                 const bool adds, const float *summand, bool rounds, uint16_t *stored, float *dx) {
    SL_ROWS(is_device_ptr(dy, x, rstd, gamma, dots, summand, dx, stored))
    for (size_t r = 0; r < rows; r++) {
        const size_t at = r * cols;
        float *out = dx + at;
        const float factor = rstd[r], along = factor * factor * (dots[r] / (float)whole);
        SL_LANES()
        for (size_t c = 0; c < cols; c++) {
            const float value = factor * (gradient_of(dy, half, at + c) * gamma[c] - element(x, half, at + c) * along);
            out[c] = adds ? value + summand[at + c] : value;
        }
        if (adds && rounds) settle_elements(at, at + cols, dx, stored);
    }
}

static void rms_norm_backward_input(size_t rows, size_t cols, size_t whole, const float *dy, struct sl_rows x,
                                    const float *rstd, const float *gamma, const float *dots, const float *summand,
                                    struct sl_out left) {
#define WITH(half, adds, summand)                                                                                      \
    backward_input_of(rows, cols, whole, dy, x.at, half, rstd, gamma, dots, adds, summand, left.rounds,                \
                      sl_out_halves(left), left.rows.at)
    if (summand && x.type == SL_BF16)
        WITH(true, true, summand);
    else if (summand)
        WITH(false, true, summand);
    else if (x.type == SL_BF16)
        WITH(true, false, NULL);
    else
        WITH(false, false, NULL);
#undef WITH
}

SL_INLINE void backward_weight_of(size_t parts, size_t rows, size_t cols, const float *dy, const void *x,
                                  const bool half, const float *rstd, float *dgamma, float *dbeta) {
    const size_t groups = column_groups(cols), stripes = stripes_of(rows, cols);
    float *const all_gamma = stripes > 1 ? sl_device.room() : dgamma;
    float *const all_beta = stripes > 1 ? all_gamma + parts * stripes * cols : dbeta;
    SL_ROWS(is_device_ptr(dy, x, rstd, all_gamma, all_beta))
    for (size_t g = 0; g < parts * stripes * groups; g++) {
        const struct stripe stripe = stripe_of(rows, stripes, g / groups);
        const size_t group = g % groups * SL_COLUMNS, from = g / groups * cols;
        float gammas[SLICE_SUMS], betas[SLICE_SUMS], *to_gamma = all_gamma + from, *to_beta = all_beta + from;
        SL_THREADS()
        for (size_t t = 0; t < SLICE_THREADS; t++) {
            const struct slice s = slice_of(stripe.count, cols, group, t);
            if (s.first >= cols) continue;
            float gamma[SL_BLOCK], beta[SL_BLOCK], *left_gamma = slice_sums(gammas, to_gamma, t, s.first);
            float *left_beta = slice_sums(betas, to_beta, t, s.first);
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) gamma[c] = beta[c] = 0.0f;
            size_t r = stripe.first + s.begin;
            const size_t end = stripe.first + s.end;
            for (; r + 2 <= end; r += 2) { /* sums are loaded and stored once per two rows */
                const size_t at = r * cols + s.first, at1 = at + cols;
                const float factor = rstd[r], factor1 = rstd[r + 1];
                for (size_t row = r + AHEAD; row < r + AHEAD + 2 && row < end; row++)
                    fetch_typed(half ? SL_BF16 : SL_F32, x, row * cols + s.first, row * cols + s.first + s.count);
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++) {
                    const float gradient = gradient_of(dy, half, at + c), gradient1 = gradient_of(dy, half, at1 + c);
                    const float in = element(x, half, at + c), in1 = element(x, half, at1 + c);
                    gamma[c] = (gamma[c] + gradient * (in * factor)) + gradient1 * (in1 * factor1);
                    beta[c] = (beta[c] + gradient) + gradient1;
                }
            }
            for (; r < end; r++) {
                const size_t at = r * cols + s.first;
                const float factor = rstd[r];
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++) {
                    const float gradient = gradient_of(dy, half, at + c);
                    gamma[c] += gradient * (element(x, half, at + c) * factor);
                    beta[c] += gradient;
                }
            }
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) {
                left_gamma[c] = gamma[c];
                left_beta[c] = beta[c];
            }
        }
        add_slices(gammas, cols, group, to_gamma);
        add_slices(betas, cols, group, to_beta);
    }
    if (stripes == 1) return;
    add_stripes(parts, stripes, cols, all_gamma, false, dgamma);
    add_stripes(parts, stripes, cols, all_beta, false, dbeta);
}

static void rms_norm_backward_weight(size_t parts, size_t rows, size_t cols, const float *dy, struct sl_rows x,
                                     const float *rstd, float *dgamma, float *dbeta) {
    const size_t most = parts_at_once(parts, rows, cols, 2);
    for (size_t part = 0, count; part < parts; part += count) {
        const size_t row = part * rows, at = row * cols, to = part * cols;
        const struct sl_rows own = sl_rows_from(x, at);
        count = most < parts - part ? most : parts - part;
        if (x.type == SL_BF16)
            backward_weight_of(count, rows, cols, dy + at, own.at, true, rstd + row, dgamma + to, dbeta + to);
        else
            backward_weight_of(count, rows, cols, dy + at, own.at, false, rstd + row, dgamma + to, dbeta + to);
    }
}

#endif
