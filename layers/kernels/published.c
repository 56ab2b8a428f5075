/* published.c - kernels for published models only: rotated heads, gated silu, gelu with erf, centered rows. Built as
 * kernels.c is; the build defines SL_PUBLISHED_KERNELS, the table's name. */
#include "layers/kernels/sequence.h"
#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

/* ---- rotations ---- */

/* Rotates pairs from I on of a head X, whose two columns are PAIRS apart, and writes them by leave_few. */
SL_INLINE void turn_few(const size_t count, size_t i, size_t pairs, const float *cosine, const float *sine, float sign,
                        const bool rounds, const bool stores, float *x, uint16_t *stored) {
    const few_floats c = load_floats(count, cosine + i), s = load_floats(count, sine + i);
    few_floats first = load_floats(count, x + i), second = load_floats(count, x + pairs + i);
    for (size_t k = 0; k < count; k++) {
        const float one = OF(first, k), other = OF(second, k), by = sign * OF(s, k);
        OF(first, k) = one * OF(c, k) - other * by;
        OF(second, k) = other * OF(c, k) + one * by;
    }
    leave_few(count, i, first, true, rounds, stores, x, stored);
    leave_few(count, pairs + i, second, true, rounds, stores, x, stored);
}

/* Rotates pair I, of neighbours. */
SL_INLINE void turn_pair(size_t i, const float *cosine, const float *sine, float sign, float *x) {
    const float first = x[2 * i], second = x[2 * i + 1], by = sign * sine[i];
    x[2 * i] = first * cosine[i] - second * by;
    x[2 * i + 1] = second * cosine[i] + first * by;
}

/* Rotates pairs BEGIN to END of all heads of a row. */
SL_INLINE void turn(size_t begin, size_t end, size_t pairs, size_t heads, const bool halves, const float *cosine,
                    const float *sine, float sign, const bool rounds, const bool stores, float *x, uint16_t *stored) {
    for (size_t h = 0; h < heads; h++, x += 2 * pairs, stored = stores ? stored + 2 * pairs : NULL) {
        if (stores && !stored) __builtin_unreachable(); /* spares GPUs a loop for this case */
        if (halves) {
            SL_IN_BLOCK()
            for (size_t i = begin; i < end; i += SL_FOUR)
                SL_BY_FOUR(turn_few, i, end,
                           FLOATS_AT(cosine) | FLOATS_AT(sine) | FLOATS_AT(x) | FLOATS_AT(x + pairs) |
                               (stores ? HALVES_AT(stored) : 0),
                           pairs, cosine, sine, sign, rounds, stores, x, stored);
        } else {
            SL_IN_BLOCK()
            for (size_t i = begin; i < end; i++) turn_pair(i, cosine, sine, sign, x);
            if (rounds) settle_block(2 * begin, 2 * end, x, stores ? stored : NULL);
        }
    }
}

/* On devices with a thread per element a thread has four pairs of all heads of a row; elsewhere it has a row. */
static void rotate_heads(size_t rows, size_t heads, size_t width, size_t sequence, size_t position,
                         const int32_t *places, bool halves, const float *cosine, const float *sine, bool back,
                         struct sl_out x) {
    const size_t pairs = width / 2, few = SL_BLOCK > SL_FOUR ? pairs : SL_FOUR, pieces = (pairs + few - 1) / few;
    const float sign = back ? -1.0f : 1.0f;
    const bool rounds = x.rounds;
    float *values = sl_out_floats(x);
    uint16_t *stored = sl_out_halves(x);
    SL_BLOCKS(is_device_ptr(places, cosine, sine, values, stored))
    for (size_t b = 0; b < rows * pieces; b++) {
        const size_t r = b / pieces, begin = b % pieces * few, end = pairs - begin < few ? pairs : begin + few;
        const size_t angles = (position + (places ? (size_t)places[r] : r % sequence)) * pairs;
        const float *c = cosine + angles, *s = sine + angles;
        float *row = values + r * heads * width;
        uint16_t *halves_of = stored ? stored + r * heads * width : NULL;
#define TURN(...)                                                                                                      \
    (halves ? turn(begin, end, pairs, heads, true, c, s, sign, __VA_ARGS__, row, halves_of)                            \
            : turn(begin, end, pairs, heads, false, c, s, sign, __VA_ARGS__, row, halves_of))
        if (!rounds)
            TURN(false, false);
        else if (stored)
            TURN(true, true);
        else
            TURN(true, false);
#undef TURN
    }
}

/* ---- gated silu ---- */

/* Pieces are rounded while they are in the first-level cache; on GPUs a piece is a thread's four elements. */
enum { PIECE = SL_BLOCK > SL_FOUR ? SL_BLOCK : SL_FOUR };

static size_t end_of_piece(size_t first, size_t n) { return n - first < PIECE ? n : first + PIECE; }

/* Calls FUNCTION for all elements of a piece. ADDRESSES: of whole arrays; FIRST is a multiple of SL_FOUR. */
#define IN_PIECE(function, first, end, addresses, ...)                                                                 \
    do {                                                                                                               \
        SL_IN_BLOCK()                                                                                                  \
        for (size_t i = first; i < (end); i += SL_FOUR) SL_BY_FOUR(function, i, end, addresses, __VA_ARGS__);          \
    } while (0)

SL_INLINE void settle_piece(size_t first, size_t end, float *x, uint16_t *stored) {
    if (stored)
        IN_PIECE(settle_few, first, end, FLOATS_AT(x) | HALVES_AT(stored), true, x, stored);
    else
        IN_PIECE(settle_few, first, end, FLOATS_AT(x), false, x, NULL);
}

/* Computes y, as floats if FLOATS, else as bf16. */
SL_INLINE void gate_few(const size_t count, size_t i, const bool floats, const float *gate, const float *x, float *y,
                        uint16_t *stored) {
    const few_floats gates = load_floats(count, gate + i);
    few_floats values = load_floats(count, x + i);
    for (size_t k = 0; k < count; k++) OF(values, k) = OF(gates, k) / (1.0f + sl_exp(-OF(gates, k))) * OF(values, k);
    leave_few(count, i, values, floats, false, !floats, y, stored);
}

static void gate_forward(size_t n, struct sl_out gate, struct sl_out x, struct sl_out y) {
    const bool rounds_gate = gate.rounds, rounds_x = x.rounds, rounds = y.rounds;
    float *gates = sl_out_floats(gate), *others = sl_out_floats(x), *values = sl_out_floats(y);
    uint16_t *gate_stored = sl_out_halves(gate), *x_stored = sl_out_halves(x), *stored = sl_out_halves(y);
    SL_BLOCKS(is_device_ptr(gates, others, values, gate_stored, x_stored, stored))
    for (size_t first = 0; first < n; first += PIECE) {
        const size_t end = end_of_piece(first, n);
        if (rounds_gate) settle_piece(first, end, gates, gate_stored);
        if (rounds_x) settle_piece(first, end, others, x_stored);
        if (!values)
            IN_PIECE(gate_few, first, end, FLOATS_AT(gates) | FLOATS_AT(others) | HALVES_AT(stored), false, gates,
                     others, NULL, stored);
        else
            IN_PIECE(gate_few, first, end, FLOATS_AT(gates) | FLOATS_AT(others) | FLOATS_AT(values), true, gates,
                     others, values, NULL);
        if (values && rounds) settle_piece(first, end, values, stored);
    }
}

/* Computes the gradients of gate and x, as floats if FLOATS, else as bf16. */
SL_INLINE void gradient_few(const size_t count, size_t i, const bool floats, const bool half, const void *gate,
                            const void *x, const float *dy, float *dgate, float *dx, uint16_t *dgate_stored,
                            uint16_t *dx_stored) {
    const few_floats slopes = load_floats(count, dy + i);
    few_floats gates = load_elements(count, half, gate, i), values = load_elements(count, half, x, i);
    for (size_t k = 0; k < count; k++) {
        const float g = OF(gates, k), s = 1.0f / (1.0f + sl_exp(-g));
        OF(gates, k) = OF(slopes, k) * OF(values, k) * (s * (1.0f + g * (1.0f - s)));
        OF(values, k) = OF(slopes, k) * (g * s);
    }
    leave_few(count, i, gates, floats, false, !floats, dgate, dgate_stored);
    leave_few(count, i, values, floats, false, !floats, dx, dx_stored);
}

static void gate_backward(size_t n, struct sl_rows gate, struct sl_rows x, const float *dy, struct sl_out dgate,
                          struct sl_out dx) {
    const bool half = gate.type == SL_BF16, rounds_dgate = dgate.rounds, rounds_dx = dx.rounds;
    const void *gates = gate.at, *others = x.at;
    float *dgates = sl_out_floats(dgate), *dothers = sl_out_floats(dx);
    uint16_t *dgate_stored = sl_out_halves(dgate), *dx_stored = sl_out_halves(dx);
    SL_BLOCKS(is_device_ptr(gates, others, dy, dgates, dothers, dgate_stored, dx_stored))
    for (size_t first = 0; first < n; first += PIECE) {
        const size_t end = end_of_piece(first, n);
#define GRADIENTS(floats, half, left_at)                                                                               \
    IN_PIECE(gradient_few, first, end,                                                                                 \
             ELEMENTS_AT(half, gates) | ELEMENTS_AT(half, others) | FLOATS_AT(dy) | (left_at), floats, half, gates,    \
             others, dy, dgates, dothers, dgate_stored, dx_stored)
        if (!dgates && half)
            GRADIENTS(false, true, HALVES_AT(dgate_stored) | HALVES_AT(dx_stored));
        else if (!dgates)
            GRADIENTS(false, false, HALVES_AT(dgate_stored) | HALVES_AT(dx_stored));
        else if (half)
            GRADIENTS(true, true, FLOATS_AT(dgates) | FLOATS_AT(dothers));
        else
            GRADIENTS(true, false, FLOATS_AT(dgates) | FLOATS_AT(dothers));
#undef GRADIENTS
        if (dgates && rounds_dgate) settle_piece(first, end, dgates, dgate_stored);
        if (dgates && rounds_dx) settle_piece(first, end, dothers, dx_stored);
    }
}

/* ---- gelu with erf ---- */

/* Density of a standard normal variable, and the probability of values below -|x|. The probability is the density times
 * a rational function, fitted to a relative error of 1.5e-7 up to |x| = 14; beyond, it is 0. */
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

/* ---- centered rows ---- */

/* On devices a team has TOGETHER rows, and ALONG threads share a row. */
enum { TOGETHER = SL_TOGETHER ? 8 : 1, ALONG = SL_TOGETHER ? 16 : 1 };

static size_t blocks_of(size_t rows) { return (rows + TOGETHER - 1) / TOGETHER; }

SL_INLINE float sum_few(const size_t count, size_t c, const float *x, float sum) {
    const few_floats all = load_floats(count, x + c);
    for (size_t k = 0; k < count; k++) sum += OF(all, k);
    return sum;
}

static void row_sums(size_t rows, size_t cols, const float *x, float *sums) {
    SL_ROWS(is_device_ptr(x, sums))
    for (size_t b = 0; b < blocks_of(rows); b++) {
        const size_t first = b * TOGETHER, end = rows - first < TOGETHER ? rows : first + TOGETHER;
        float parts[TOGETHER * ALONG];
        SL_THREADS()
        for (size_t t = 0; t < TOGETHER * ALONG; t++) {
            const size_t count = first + t / ALONG < end ? cols : 0;
            const float *in = x + (first + t / ALONG) * cols;
            float sum = 0.0f;
            SL_PRAGMA(omp simd reduction(+ : sum))
            for (size_t c = t % ALONG * SL_FOUR; c < count; c += ALONG * SL_FOUR)
                SL_BY_FOUR(sum = sum_few, c, count, FLOATS_AT(in), in, sum);
            parts[t] = sum;
        }
        SL_THREADS()
        for (size_t r = first; r < end; r++) {
            float sum = parts[(r - first) * ALONG];
            for (size_t k = 1; k < ALONG; k++) sum += parts[(r - first) * ALONG + k];
            sums[r] = sum;
        }
    }
}

SL_INLINE void center_few(const size_t count, size_t c, float mean, const float *x, float *y) {
    few_floats all = load_floats(count, x + c);
    for (size_t k = 0; k < count; k++) OF(all, k) -= mean;
    store_floats(count, all, y + c);
}

/* Each thread computes its row's mean from SUMS: threads need no team. */
static void center_rows(size_t rows, size_t cols, size_t whole, const float *sums, const float *x, float *y) {
    SL_BLOCKS(is_device_ptr(sums, x, y))
    for (size_t t = 0; t < rows * ALONG; t++) {
        const size_t r = t / ALONG;
        const float *in = x + r * cols, mean = sums[r] / (float)whole;
        float *out = y + r * cols;
        SL_IN_BLOCK()
        for (size_t c = t % ALONG * SL_FOUR; c < cols; c += ALONG * SL_FOUR)
            SL_BY_FOUR(center_few, c, cols, FLOATS_AT(in) | FLOATS_AT(out), mean, in, out);
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
