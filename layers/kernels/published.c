/* published.c - what published models have beside what sequence.c does: heads that are rotated, gated silu, gelu with
 * erf, rows around their mean. Built as kernels.c is; the build defines SL_PUBLISHED_KERNELS, the table's name. */
#include "layers/kernels/sequence.h"
#include "layers/kernels/rows/settle_internal.h"
#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

/* ---- rotations ---- */

/* With HALVES as a constant: the two columns of a pair are WIDTH / 2 apart, or side by side. */
SL_INLINE void turn(size_t pairs, const bool halves, const float *c, const float *s, float sign, float *x) {
    const size_t step = halves ? 1 : 2, apart = halves ? pairs : 1;
    SL_LANES()
    for (size_t i = 0; i < pairs; i++) {
        const float first = x[i * step], second = x[i * step + apart], by = sign * s[i];
        x[i * step] = first * c[i] - second * by;
        x[i * step + apart] = second * c[i] + first * by;
    }
}

static void rotate_heads(size_t rows, size_t heads, size_t width, size_t sequence, size_t position,
                         const int32_t *places, bool halves, const float *cosine, const float *sine, bool back,
                         float *x, struct sl_settled left) {
    const size_t pairs = width / 2;
    const float sign = back ? -1.0f : 1.0f;
    const bool rounds = left.rounds;
    uint16_t *stored = left.stored;
    SL_ROWS(is_device_ptr(places, cosine, sine, x, stored))
    for (size_t r = 0; r < rows; r++) {
        const size_t angles = (position + (places ? (size_t)places[r] : r % sequence)) * pairs;
        for (size_t h = 0; h < heads; h++) {
            float *head = x + (r * heads + h) * width;
            if (halves)
                turn(pairs, true, cosine + angles, sine + angles, sign, head);
            else
                turn(pairs, false, cosine + angles, sine + angles, sign, head);
        }
        if (rounds) settle_elements(r * heads * width, (r + 1) * heads * width, x, stored);
    }
}

/* ---- gated silu ---- */

/* Blocks are rounded while they are in the first-level cache. */

static size_t end_of_block(size_t first, size_t n) { return n - first < SL_BLOCK ? n : first + SL_BLOCK; }

static void gate_forward(size_t n, float *gate, float *x, float *y, struct sl_settled gate_left,
                         struct sl_settled x_left, struct sl_settled left) {
    const bool rounds_gate = gate_left.rounds, rounds_x = x_left.rounds, rounds = left.rounds;
    uint16_t *gate_stored = gate_left.stored, *x_stored = x_left.stored, *stored = left.stored;
    SL_BLOCKS(is_device_ptr(gate, x, y, gate_stored, x_stored, stored))
    for (size_t first = 0; first < n; first += SL_BLOCK) {
        const size_t end = end_of_block(first, n);
        if (rounds_gate) settle_block(first, end, gate, gate_stored);
        if (rounds_x) settle_block(first, end, x, x_stored);
        if (y) {
            SL_IN_BLOCK()
            for (size_t i = first; i < end; i++) y[i] = gate[i] / (1.0f + sl_exp(-gate[i])) * x[i];
            if (rounds) settle_block(first, end, y, stored);
        } else {
            SL_IN_BLOCK()
            for (size_t i = first; i < end; i++)
                stored[i] = sl_bf16_of_float(gate[i] / (1.0f + sl_exp(-gate[i])) * x[i]);
        }
    }
}

struct gate_gradient {
    float gate, x;
};

SL_INLINE struct gate_gradient gate_gradient(size_t i, const void *gate, const void *x, const bool half,
                                             const float *dy) {
    const float g = element(gate, half, i), s = 1.0f / (1.0f + sl_exp(-g));
    return (struct gate_gradient){dy[i] * element(x, half, i) * (s * (1.0f + g * (1.0f - s))), dy[i] * (g * s)};
}

SL_INLINE void gate_gradients(size_t first, size_t end, const void *gate, const void *x, const bool half,
                              const float *dy, float *dgate, float *dx) {
    SL_IN_BLOCK()
    for (size_t i = first; i < end; i++) {
        const struct gate_gradient gradient = gate_gradient(i, gate, x, half, dy);
        dgate[i] = gradient.gate;
        dx[i] = gradient.x;
    }
}

SL_INLINE void store_gradients(size_t first, size_t end, const void *gate, const void *x, const bool half,
                               const float *dy, uint16_t *dgate, uint16_t *dx) {
    SL_IN_BLOCK()
    for (size_t i = first; i < end; i++) {
        const struct gate_gradient gradient = gate_gradient(i, gate, x, half, dy);
        dgate[i] = sl_bf16_of_float(gradient.gate);
        dx[i] = sl_bf16_of_float(gradient.x);
    }
}

static void gate_backward(size_t n, const void *gate, const void *x, bool half, const float *dy, float *dgate,
                          float *dx, struct sl_settled dgate_left, struct sl_settled dx_left) {
    const bool rounds_dgate = dgate_left.rounds, rounds_dx = dx_left.rounds;
    uint16_t *dgate_stored = dgate_left.stored, *dx_stored = dx_left.stored;
    SL_BLOCKS(is_device_ptr(gate, x, dy, dgate, dx, dgate_stored, dx_stored))
    for (size_t first = 0; first < n; first += SL_BLOCK) {
        const size_t end = end_of_block(first, n);
        if (!dgate) {
            if (half)
                store_gradients(first, end, gate, x, true, dy, dgate_stored, dx_stored);
            else
                store_gradients(first, end, gate, x, false, dy, dgate_stored, dx_stored);
            continue;
        }
        if (half)
            gate_gradients(first, end, gate, x, true, dy, dgate, dx);
        else
            gate_gradients(first, end, gate, x, false, dy, dgate, dx);
        if (rounds_dgate) settle_block(first, end, dgate, dgate_stored);
        if (rounds_dx) settle_block(first, end, dx, dx_stored);
    }
}

/* ---- gelu with erf ---- */

/* Of a normal variable: its density, and the probability that it is below -|x|. The latter is the former times a
 * rational function, fitted for 1.5e-7 of relative error up to |x| = 14, beyond which it is 0. */
SL_INLINE float normal_density(float x) { return 0.398942280f * sl_exp(-0.5f * x * x); }

SL_INLINE float normal_tail(float x, float density) {
    const float t = 1.0f / (1.0f + 0.3f * fabsf(x));
    float p = 0.0894236524f;
    p = p * t - 0.394050725f;
    p = p * t + 0.517253247f;
    p = p * t - 0.134566436f;
    p = p * t + 0.322256949f;
    p = p * t + 0.250445777f;
    p = p * t + 0.302685310f;
    p = p * t + 0.299866181f;
    return density * t * p;
}

static void erf_gelu_forward(size_t n, const float *x, float *y) {
    SL_ELEMENTWISE(is_device_ptr(x, y), )
    for (size_t i = 0; i < n; i++) {
        const float tail = normal_tail(x[i], normal_density(x[i]));
        y[i] = x[i] * (x[i] > 0.0f ? 1.0f - tail : tail);
    }
}

static void erf_gelu_backward(size_t n, const float *x, const float *dy, float *dx) {
    SL_ELEMENTWISE(is_device_ptr(x, dy, dx), )
    for (size_t i = 0; i < n; i++) {
        const float density = normal_density(x[i]), tail = normal_tail(x[i], density);
        dx[i] = dy[i] * ((x[i] > 0.0f ? 1.0f - tail : tail) + x[i] * density);
    }
}

/* ---- rows around their mean ---- */

static void row_sums(size_t rows, size_t cols, const float *x, float *sums) {
    SL_ROWS(is_device_ptr(x, sums))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float sum = 0.0f;
        SL_LANES(reduction(+ : sum))
        for (size_t c = 0; c < cols; c++) sum += in[c];
        sums[r] = sum;
    }
}

static void center_rows(size_t rows, size_t cols, size_t whole, const float *sums, const float *x, float *y) {
    SL_ROWS(is_device_ptr(sums, x, y))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * cols, mean = sums[r] / (float)whole;
        float *out = y + r * cols;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = in[c] - mean;
    }
}

const struct sl_published_kernels SL_PUBLISHED_KERNELS = {
    .rotate_heads = rotate_heads,
    .gate_forward = gate_forward,
    .gate_backward = gate_backward,
    .erf_gelu_forward = erf_gelu_forward,
    .erf_gelu_backward = erf_gelu_backward,
    .row_sums = row_sums,
    .center_rows = center_rows,
};
