/* dropout.c - dropout that draws its own words, built as kernels.c is: a hash gives two words, so an iteration computes
 * two elements.
 *
 * The build defines SL_DROPOUT_KERNELS, the table's name. */
#include "layers/kernels/dropout.h"
#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

enum {
    ABREAST = 32, /* elements at a time, in several vectors: these hide the latency of an element's long chain */
    KEYS = 4,     /* keys of a region */
};

/* Computes element I. Callers pass a constant SILU. */
SL_INLINE void drop(size_t i, uint32_t word, const bool silu, uint32_t threshold, float gain, const void *x, bool half,
                    float *y, bool rounds, uint16_t *stored, float *slope, uint16_t *slope_stored) {
    const float factor = word >> 9 < threshold ? gain : 0.0f, v = element(x, half, i), s = silu ? sl_sigmoid(v) : 1.0f;
    const float value = silu ? factor * (v * s) : factor * v;
    const float derivative = silu ? factor * (s * (1.0f + v * (1.0f - s))) : factor;
    if (stored) stored[i] = sl_bf16_of_float(value);
    if (y) y[i] = rounds ? sl_bf16_part(value) : value;
    if (slope)
        slope[i] = derivative;
    else
        slope_stored[i] = sl_bf16_of_float(derivative);
}

/* Drops PARTS parts of N elements, at most KEYS parts, whose keys a region receives as scalars. Words i and i + half
 * come from the same hash. */
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
        drop(part * n + at, y0, silu, threshold, gain, x, half_x, y, rounds, stored, slope, slope_stored);
        if (at < pairs)
            drop(part * n + half + at, y1, silu, threshold, gain, x, half_x, y, rounds, stored, slope, slope_stored);
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
        if (column >= first_col) drop(at, y0, silu, threshold, gain, x, half, y, rounds, stored, slope, slope_stored);
        if (column + 1 < end) drop(at + 1, y1, silu, threshold, gain, x, half, y, rounds, stored, slope, slope_stored);
    }
}

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

static void drop_arrays(const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays) {
    if (arrays->silu)
        drop_all(true, words, arrays);
    else
        drop_all(false, words, arrays);
}

const struct sl_dropout_kernels SL_DROPOUT_KERNELS = {.drop = drop_arrays};
