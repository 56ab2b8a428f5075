/* softmax_internal.h - the softmax of logits whose classes come in chunks, and its slope: the kernels that read and
 * write every logit. Part of sequence.c. */
#ifndef SL_LAYERS_KERNELS_SOFTMAX_INTERNAL_H
#define SL_LAYERS_KERNELS_SOFTMAX_INTERNAL_H

#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/slices_internal.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/base/numbers/as_left_internal.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

/* On devices with teams a team has TOGETHER rows, and ALONG threads have a row. */
enum { TOGETHER = SLICED ? 4 : 1, ALONG = SLICED ? SLICE_THREADS / TOGETHER : 1 };

/* Returns NUMBER - first if NUMBER is in [first, first + count), else -1. */
static inline int64_t place_of(int32_t number, int32_t first, int64_t count) {
    const int64_t place = (int64_t)number - first;
    return place >= 0 && place < count ? place : -1;
}

/* Returns the larger of HIGHEST and the logits from C on, as ordered integers. */
SL_INLINE int32_t highest_few(const size_t count, size_t c, const float *x, int32_t highest) {
    const few_floats logits = load_floats(count, x + c);
    for (size_t k = 0; k < count; k++) {
        const int32_t order = sl_order_of_float(OF(logits, k));
        highest = order > highest ? order : highest;
    }
    return highest;
}

/* Whether the floats and the bf16 copy that are written have the alignment of the logits X. */
#define LIE_ALIKE(x, floats, out, stores, halves)                                                                      \
    ((!(floats) || SL_ALIKE(x, FLOATS_AT(out))) && (!(stores) || SL_ALIKE(x, HALVES_AT(halves))))

/* Writes p = exp(logits - max) from C on, by leave_few; returns SUM plus their sum. */
SL_INLINE float power_few(const size_t count, size_t c, const bool floats, const bool stores, const float *x, float max,
                          float *p, uint16_t *stored, float sum) {
    few_floats powers = load_floats(count, x + c);
    for (size_t k = 0; k < count; k++) {
        OF(powers, k) = sl_exp(OF(powers, k) - max);
        sum += OF(powers, k);
    }
    leave_few(count, c, powers, floats, false, stores, p, stored);
    return sum;
}

/* Returns the smaller of AT and the first class from C on, of CLASSES, whose logit is MAX; or NaN. */
SL_INLINE int32_t first_few(const size_t count, size_t c, const float *x, float max, int32_t classes, int32_t at) {
    const few_floats logits = load_floats(count, x + c);
    for (size_t k = 0; k < count; k++) {
        const int32_t candidate = OF(logits, k) < max ? classes : (int32_t)(c + k); /* also correct if a logit is NaN */
        at = candidate < at ? candidate : at;
    }
    return at;
}

/* Of ALONG threads of a row X, thread T takes every ALONG-th group of four: the same elements in each loop, because p
 * may overwrite the logits. */
#define OF_THREAD(c, t, lead, cols) (size_t c = (t) % ALONG * SL_FOUR; c < (lead) + (cols); c += ALONG * SL_FOUR)

/* Returns the largest logit of a thread, as an ordered integer. */
SL_INLINE int32_t highest_of_thread(size_t t, size_t cols, const float *x) {
    const size_t lead = SL_LEAD(x);
    int32_t highest = sl_order_of_float(-INFINITY);
    SL_IN_BLOCK(reduction(max : highest))
    for
        OF_THREAD(c, t, lead, cols) SL_ROW_BY_FOUR(highest = highest_few, c, lead, cols, true, x, highest);
    return highest;
}

/* Returns a thread's first class whose logit is MAX, or COLS. */
SL_INLINE int32_t first_of_thread(size_t t, size_t cols, const float *x, float max) {
    const size_t lead = SL_LEAD(x);
    const int32_t classes = (int32_t)cols;
    int32_t at = classes;
    SL_IN_BLOCK(reduction(min : at))
    for
        OF_THREAD(c, t, lead, cols) SL_ROW_BY_FOUR(at = first_few, c, lead, cols, true, x, max, classes, at);
    return at;
}

/* Writes a thread's p to OUT and HALVES, which may be NULL; returns their sum. */
SL_INLINE float powers_of_thread(size_t t, size_t cols, const float *x, float max, float *out, uint16_t *halves) {
    const size_t lead = SL_LEAD(x);
    float sum = 0.0f;
#define POWERS(floats, rounds, stores)                                                                                 \
    do {                                                                                                               \
        SL_IN_BLOCK(SL_ALIKE_LANES reduction(+ : sum))                                                                 \
        for                                                                                                            \
            OF_THREAD(c, t, lead, cols)                                                                                \
        SL_ROW_BY_FOUR(sum = power_few, c, lead, cols, LIE_ALIKE(x, floats, out, stores, halves), floats, stores, x,   \
                       max, out, halves, sum);                                                                         \
    } while (0)
    SL_AS_LEFT(POWERS, out, false, halves);
#undef POWERS
    return sum;
}

/* Whether MAX is beyond BEFORE, so that a class of it is to be found: 0 is no larger than -0; NaN is larger. */
SL_INLINE bool is_beyond(bool begins, float max, float before) { return begins || !(max <= before); }

static void softmax_chunk(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                          bool begins, float *maxima, float *argmaxima, float *sums, float *targets, float *scales,
                          struct sl_out p) {
    float *values = sl_out_floats(p);
    uint16_t *stored = sl_out_halves(p);
    SL_ROWS(is_device_ptr(logits, labels, maxima, argmaxima, sums, targets, scales, values, stored))
    for (size_t b = 0; b < (rows + TOGETHER - 1) / TOGETHER; b++) {
        int32_t highs[TOGETHER * ALONG], ats[TOGETHER * ALONG];
        float parts[TOGETHER * ALONG], hits[TOGETHER], tops[TOGETHER];
        SL_THREADS()
        for (size_t t = 0; t < TOGETHER * ALONG; t++) {
            const size_t r = b * TOGETHER + t / ALONG;
            if (r >= rows) continue;
            const float *x = logits + r * cols;
            const int64_t label = place_of(labels[r], first, (int64_t)cols);
            highs[t] = highest_of_thread(t, cols, x);
            if (t % ALONG == 0) hits[t / ALONG] = label < 0 ? 0.0f : x[label];
        }
        SL_THREADS()
        for (size_t t = 0; t < TOGETHER * ALONG; t++) {
            const size_t r = b * TOGETHER + t / ALONG;
            if (r >= rows) continue;
            const float *x = logits + r * cols;
            const float before = begins ? -INFINITY : maxima[r];
            const int32_t order = sl_order_of_float(before);
            int32_t highest = order;
            for (size_t k = t / ALONG * ALONG; k < (t / ALONG + 1) * ALONG; k++)
                highest = highs[k] > highest ? highs[k] : highest;
            const float max = begins || highest > order ? sl_float_of_order(highest) : before;
            ats[t] = is_beyond(begins, max, before) ? first_of_thread(t, cols, x, max) : 0;
            parts[t] =
                powers_of_thread(t, cols, x, max, values ? values + r * cols : NULL, stored ? stored + r * cols : NULL);
            if (t % ALONG == 0) tops[t / ALONG] = max;
        }
        SL_THREADS()
        for (size_t r = b * TOGETHER; r < smaller(rows, (b + 1) * TOGETHER); r++) {
            const size_t row = r % TOGETHER;
            const float max = tops[row], before = begins ? -INFINITY : maxima[r];
            const bool grows = sl_order_of_float(max) > sl_order_of_float(before);
            const float scale = begins ? 0.0f : grows ? sl_exp(before - max) : 1.0f;
            int32_t at = (int32_t)cols;
            float sum = 0.0f;
            for (size_t k = row * ALONG; k < (row + 1) * ALONG; k++) {
                at = ats[k] < at ? ats[k] : at;
                sum += parts[k];
            }
            if (is_beyond(begins, max, before)) argmaxima[r] = (float)(first + at);
            maxima[r] = max;
            scales[r] = scale;
            sums[r] = begins ? sum : sums[r] * scale + sum;
            targets[r] = begins ? hits[row] : targets[r] + hits[row];
        }
    }
}

/* Writes FACTOR times exp(logits - max) from C on. */
SL_INLINE void slope_few(const size_t count, size_t c, const bool floats, const bool stores, const float *x, float max,
                         float factor, float *out, uint16_t *stored) {
    few_floats slopes = load_floats(count, x + c);
    for (size_t k = 0; k < count; k++) OF(slopes, k) = factor * sl_exp(OF(slopes, k) - max);
    leave_few(count, c, slopes, floats, false, stores, out, stored);
}

/* Each thread changes its own elements only: threads need no team. */
static void softmax_dlogits(size_t rows, size_t cols, int32_t first, const int32_t *labels, const float *maxima,
                            const float *sums, float weight, const float *logits, struct sl_out dlogits) {
    float *values = sl_out_floats(dlogits);
    uint16_t *stored = sl_out_halves(dlogits);
    SL_BLOCKS(is_device_ptr(labels, maxima, sums, logits, values, stored))
    for (size_t t = 0; t < rows * ALONG; t++) {
        const size_t r = t / ALONG;
        const float *x = logits + r * cols;
        float *out = values ? values + r * cols : NULL;
        uint16_t *halves = stored ? stored + r * cols : NULL;
        const size_t lead = SL_LEAD(x);
        const float max = maxima[r], factor = weight / sums[r];
        const int64_t label = place_of(labels[r], first, (int64_t)cols);
        if (labels[r] < 0) {
            SL_IN_BLOCK()
            for (size_t c = t % ALONG; c < cols; c += ALONG) {
                if (values) out[c] = 0.0f;
                if (stored) halves[c] = 0;
            }
            continue;
        }
#define SLOPES(floats, rounds, stores)                                                                                 \
    do {                                                                                                               \
        SL_IN_BLOCK()                                                                                                  \
        for                                                                                                            \
            OF_THREAD(c, t, lead, cols)                                                                                \
        SL_ROW_BY_FOUR(slope_few, c, lead, cols, LIE_ALIKE(x, floats, out, stores, halves), floats, stores, x, max,    \
                       factor, out, halves);                                                                           \
    } while (0)
        SL_AS_LEFT(SLOPES, values, false, stored);
#undef SLOPES
        if (label >= 0 && (lead + (size_t)label) / SL_FOUR % ALONG == t % ALONG) {
            const float slope = (values ? out[label] : factor * sl_exp(x[label] - max)) - weight;
            if (values) out[label] = slope;
            if (stored) halves[label] = sl_bf16_of_float(slope);
        }
    }
}

#endif
