/* operands.c - kernels with results in the next kernel's input form; built as kernels.c is.
 *
 * The build defines SL_OPERAND_KERNELS, the table's name. */
#include "layers/kernels/operands/operands.h"
#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "spmd/base/numbers/as_left_internal.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

#include <math.h>

enum {
    ABREAST = 32, /* elements at a time, in several vectors: these hide the latency of an element's long chain */
    KEYS = 4,     /* keys of a region */
};

/* ---- silu ---- */

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

/* ---- dropout ---- */

/* Computes element I with its WORD. SILU is a constant; on hosts all flags are constants. The mask is a factor: for a
 * conditional, compilers would put the arithmetic behind a branch. */
SL_INLINE void drop(size_t i, uint32_t word, const bool silu, uint32_t threshold, float gain, const void *x,
                    const bool half, const bool floats, const bool rounds, const bool stores, const bool halves,
                    float *y, uint16_t *stored, void *slope) {
    const float factor = word >> 9 < threshold ? gain : 0.0f, v = element(x, half, i), s = silu ? sl_sigmoid(v) : 1.0f;
    const float value = silu ? factor * (v * s) : factor * v;
    const float derivative = silu ? factor * (s * (1.0f + v * (1.0f - s))) : factor;
    if (stores) stored[i] = sl_bf16_of_float(value);
    if (floats) y[i] = rounds ? sl_bf16_part(value) : value;
    if (halves)
        ((uint16_t *)slope)[i] = sl_bf16_of_float(derivative);
    else
        ((float *)slope)[i] = derivative;
}

SL_INLINE void dropout_of(size_t n, const bool silu, const bool halves, const bool floats, const bool rounds,
                          const bool stores, const float *x, const uint32_t *words, uint32_t threshold, float gain,
                          float *y, uint16_t *stored, void *slope) {
    SL_ELEMENTWISE(is_device_ptr(x, words, y, stored, slope), simdlen(ABREAST))
    for (size_t i = 0; i < n; i++)
        drop(i, words[i], silu, threshold, gain, x, false, floats, rounds, stores, halves, y, stored, slope);
}

static void drop_by_words(const uint32_t *words, const struct sl_dropout_arrays *arrays, float gain) {
    float *floats = sl_out_floats(arrays->y);
    uint16_t *stored = sl_out_halves(arrays->y);
#define DROP(...)                                                                                                      \
    dropout_of(arrays->count, __VA_ARGS__, arrays->x.at, words, arrays->threshold, gain, floats, stored,               \
               arrays->slope.at)
#define WITH_SILU(...) DROP(true, true, __VA_ARGS__)
#define ALONE(...) DROP(false, true, __VA_ARGS__)
    if (arrays->slope.type == SL_F32 && arrays->silu)
        DROP(true, false, true, false, false);
    else if (arrays->slope.type == SL_F32)
        DROP(false, false, true, false, false);
    else if (arrays->silu)
        SL_AS_LEFT(WITH_SILU, floats, arrays->y.rounds, stored);
    else
        SL_AS_LEFT(ALONE, floats, arrays->y.rounds, stored);
#undef DROP
#undef WITH_SILU
#undef ALONE
}

/* An iteration computes the two elements of a hash. */
#define DROP(i, word, half)                                                                                            \
    drop(i, word, silu, threshold, gain, x, half, y, rounds, stored, !slope, y, stored,                                \
         slope ? (void *)slope : (void *)slope_stored)

/* Drops elements of PARTS parts of N elements each. PARTS is at most KEYS, because a region receives the keys as
 * scalars. Words i and i + half come from the same hash. */
SL_INLINE void drop_parts(const bool silu, size_t parts, const struct sl_key *keys, size_t next, uint32_t n,
                          uint32_t threshold, float gain, const void *x, bool half_x, float *y, bool rounds,
                          uint16_t *stored, float *slope, uint16_t *slope_stored) {
    const uint32_t half = n / 2 + (n & 1), pairs = n / 2;
    uint64_t key[KEYS] = {0};
    for (size_t k = 0; k < parts; k++) key[k] = (uint64_t)keys[k * next].word[1] << 32 | keys[k * next].word[0];
    const uint64_t k0 = key[0], k1 = key[1], k2 = key[2], k3 = key[3];
    SL_ELEMENTWISE(is_device_ptr(x, y, stored, slope, slope_stored), simdlen(ABREAST))
    for (size_t i = 0; i < parts * half; i++) {
        const size_t part = i / half, at = i % half;
        const uint64_t k = part < 2 ? (part ? k1 : k0) : (part > 2 ? k3 : k2);
        uint32_t y0, y1;
        sl_threefry2x32((struct sl_key){{(uint32_t)k, (uint32_t)(k >> 32)}}, (uint32_t)at,
                        at < pairs ? (uint32_t)at + half : 0, &y0, &y1);
        DROP(part * n + at, y0, half_x);
        if (at < pairs) DROP(part * n + half + at, y1, half_x);
    }
}

/* Columns 2c and 2c + 1 of a row share a hash; a row may use half a hash at either end. */
SL_INLINE void drop_rows(const bool silu, struct sl_key key, uint32_t first_row, uint32_t rows, uint32_t first_col,
                         uint32_t cols, uint32_t threshold, float gain, const void *x, bool half, float *y, bool rounds,
                         uint16_t *stored, float *slope, uint16_t *slope_stored) {
    const uint32_t key0 = key.word[0], key1 = key.word[1], first = first_col / 2;
    const uint32_t hashes = cols ? (first_col + cols - 1) / 2 - first + 1 : 0, end = first_col + cols;
    SL_ELEMENTWISE(is_device_ptr(x, y, stored, slope, slope_stored), simdlen(ABREAST))
    for (size_t i = 0; i < (size_t)rows * hashes; i++) {
        const uint32_t row = (uint32_t)(i / hashes), column = (first + (uint32_t)(i % hashes)) * 2;
        const size_t at = (size_t)row * cols + column - first_col;
        uint32_t y0, y1;
        sl_threefry2x32((struct sl_key){{key0, key1}}, first_row + row, column / 2, &y0, &y1);
        if (column >= first_col) DROP(at, y0, half);
        if (column + 1 < end) DROP(at + 1, y1, half);
    }
}

#undef DROP

SL_INLINE void drop_all(const bool silu, const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays) {
    const float gain = 1.0f / arrays->keep;
    const struct sl_key *keys = words->keys;
    const bool half = arrays->x.type == SL_BF16, rounds = arrays->y.rounds, halves = arrays->slope.type == SL_BF16;
    float *y = sl_out_floats(arrays->y), *slope = halves ? NULL : arrays->slope.at;
    uint16_t *stored = sl_out_halves(arrays->y), *slope_stored = halves ? arrays->slope.at : NULL;
    if (!keys) {
        drop_rows(silu, words->key, words->first_row, words->rows, words->first_col, words->cols, arrays->threshold,
                  gain, arrays->x.at, half, y, rounds, stored, slope, slope_stored);
        return;
    }
    for (size_t k = 0; k < words->parts; k += KEYS) {
        const size_t left = words->parts - k, at = k * words->part;
        const char *x = (const char *)arrays->x.at + at * sl_dtype_size(arrays->x.type);
        drop_parts(silu, left < KEYS ? left : KEYS, keys + k * words->next, words->next, words->part, arrays->threshold,
                   gain, x, half, y ? y + at : NULL, rounds, stored ? stored + at : NULL, slope ? slope + at : NULL,
                   slope ? NULL : slope_stored + at);
    }
}

static void dropout(const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays) {
    if (words->at)
        drop_by_words(words->at, arrays,
                      1.0f / arrays->keep); /* a factor, as XLA turns division by a constant into one */
    else if (arrays->silu)
        drop_all(true, words, arrays);
    else
        drop_all(false, words, arrays);
}

/* ---- products ---- */

/* Floats of a are rounded if b is bf16 (HALVES). */
SL_INLINE void multiply_few(const size_t count, size_t i, const bool half, const bool halves, const bool floats,
                            const bool rounds, const bool stores, const void *a, const void *b, float *y,
                            uint16_t *stored) {
    const few_floats factors = load_elements(count, halves, b, i);
    few_floats values = load_elements(count, half, a, i);
    if (halves && !half) values = widen_halves(count, round_floats(count, values));
    for (size_t k = 0; k < count; k++) OF(values, k) = OF(values, k) * OF(factors, k);
    leave_few(count, i, values, floats, rounds, stores, y, stored);
}

static void multiply_elements(size_t n, const float *a, const float *b, float *y) {
    SL_ELEMENTWISE(is_device_ptr(a, b, y))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_few, i, n, FLOATS_AT(a + i) | FLOATS_AT(b + i) | FLOATS_AT(y + i), false, false, true,
                   false, false, a, b, y, NULL);
}

static void multiply_rounded(size_t n, const float *a, const float *b, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(a, b, y))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_few, i, n, FLOATS_AT(a + i) | FLOATS_AT(b + i) | HALVES_AT(y + i), false, false, false,
                   true, true, a, b, NULL, y);
}

/* Multiplies by slopes that are saved as bf16. */
SL_INLINE void multiply_kept_of(size_t n, const bool half, const bool floats, const bool rounds, const bool stores,
                                const void *dy, const uint16_t *slope, float *dx, uint16_t *stored) {
    SL_ELEMENTWISE(is_device_ptr(dy, slope, dx, stored))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(multiply_few, i, n, ELEMENTS_AT(half, dy) | HALVES_AT(slope) | FLOATS_AT(dx) | HALVES_AT(stored),
                   half, true, floats, rounds, stores, dy, slope, dx, stored);
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
