/* numbers.h - helpers for tests of arithmetic: random inputs from a fixed seed, and comparison with an oracle. */
#ifndef SL_TESTS_RIGS_NUMBERS_H
#define SL_TESTS_RIGS_NUMBERS_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/dtype.h"
#include "spmd/device/device.h"

/* A 64-bit linear congruential generator; its upper half is good enough here. */
struct numbers {
    uint64_t state;
};

static inline uint32_t next_word(struct numbers *numbers) {
    numbers->state = numbers->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(numbers->state >> 32);
}

/* From LOW up to HIGH. */
static inline float next_float(struct numbers *numbers, float low, float high) {
    return low + (high - low) * ((float)(next_word(numbers) >> 8) * 0x1p-24f);
}

/* Allocates exactly COUNT zeroed elements, so sanitizers see an access beyond them. Ends the test if there is no
 * memory. */
static inline void *array_of(size_t count, size_t size) {
    void *array = calloc(count ? count : 1, size);
    assert_non_null(array);
    return array;
}

static inline float *floats(size_t count) { return array_of(count, sizeof(float)); }

static inline float *random_floats(struct numbers *numbers, size_t count, float low, float high) {
    float *array = floats(count);
    for (size_t i = 0; i < count; i++) array[i] = next_float(numbers, low, high);
    return array;
}

/* Returns random numbers from -1 up to 1, as DTYPE: float32, or bf16. */
static inline void *random_operand(struct numbers *numbers, enum sl_dtype dtype, size_t count) {
    float *values = random_floats(numbers, count, -1.0f, 1.0f);
    if (dtype == SL_F32) return values;
    uint16_t *rounded = array_of(count, sizeof *rounded);
    for (size_t i = 0; i < count; i++) rounded[i] = sl_bf16_of_float(values[i]);
    free(values);
    return rounded;
}

/* ---- memory for kernels and modules, released by release_array ----
 *
 * If the device shares the host's memory, an array has exactly COUNT elements. Otherwise it is device memory that the
 * host can read (SHARDLOOP_MEMORY=managed) after sl_device.settle has waited for the queue: kernels need no wait,
 * products and copies do. */

static inline void *device_array(size_t count, size_t size) {
    if (sl_device.shares_memory) return array_of(count, size);
    void *array = sl_device.take(count * size);
    assert_non_null(array);
    return array;
}

static inline void release_array(void *array) { (sl_device.shares_memory ? free : sl_device.give)(array); }

static inline void *device_copy(const void *values, size_t bytes) {
    void *copy = device_array(bytes, 1);
    return memcpy(copy, values, bytes);
}

static inline float *device_floats(size_t count) { return device_array(count, sizeof(float)); }

/* Rounds X to bf16 in place. Returns the bf16 copy. */
static inline uint16_t *settle(float *x, size_t n) {
    uint16_t *stored = device_array(n, sizeof *stored);
    for (size_t i = 0; i < n; i++) {
        stored[i] = sl_bf16_of_float(x[i]);
        x[i] = sl_float_of_bf16(stored[i]);
    }
    return stored;
}

static inline float *random_device_floats(struct numbers *numbers, size_t count, float low, float high) {
    float *array = device_floats(count);
    for (size_t i = 0; i < count; i++) array[i] = next_float(numbers, low, high);
    return array;
}

/* Whole numbers from -4 to 4: sums of them are exact, and some are equal. */
static inline float *random_device_wholes(struct numbers *numbers, size_t count) {
    float *array = device_floats(count);
    for (size_t i = 0; i < count; i++) array[i] = (float)(next_word(numbers) % 9) - 4.0f;
    return array;
}

static inline uint32_t *random_device_words(struct numbers *numbers, size_t count) {
    uint32_t *array = device_array(count, sizeof *array);
    for (size_t i = 0; i < count; i++) array[i] = next_word(numbers);
    return array;
}

/* Returns LOGITS [rows, classes] of magnitude SCALE, half of the rows all negative. Sets LABELS: some are -1 (left
 * out), in odd rows the label's logit is the largest. release_array releases both. */
static inline float *random_logits(struct numbers *numbers, size_t rows, size_t classes, float scale,
                                   int32_t **labels) {
    float *logits = random_device_floats(numbers, rows * classes, -scale, scale);
    *labels = device_array(rows, sizeof **labels);
    for (size_t r = 0; r < rows; r++) {
        const int32_t label = (*labels)[r] = (int32_t)(next_word(numbers) % (classes + 1)) - 1;
        const float shift = r % 4 < 2 ? 0.0f : -3.0f * scale;
        float *row = logits + r * classes;
        for (size_t c = 0; c < classes; c++) row[c] += shift;
        if (r % 2 && label >= 0) row[label] = 1.5f * scale + shift;
    }
    return logits;
}

/* ---- how near comparisons have come to their limits; printed at the end of the program as a TAP comment ---- */

static struct {
    pthread_mutex_t lock;
    _Atomic double share; /* of the allowed difference */
    double got, want;
    char what[64];
} nearest_to_limit = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void tell_nearest(void) {
    printf("# nearest to its limit: %.3g of what is allowed, %s, %.9g for %.9g\n", nearest_to_limit.share,
           nearest_to_limit.what, nearest_to_limit.got, nearest_to_limit.want);
}

static inline void note_nearest(double share, const char *what, double got, double want) {
    pthread_mutex_lock(&nearest_to_limit.lock);
    if (!*nearest_to_limit.what) atexit(tell_nearest);
    if (share > nearest_to_limit.share) {
        nearest_to_limit.share = share;
        nearest_to_limit.got = got;
        nearest_to_limit.want = want;
        snprintf(nearest_to_limit.what, sizeof nearest_to_limit.what, "%.63s", what);
    }
    pthread_mutex_unlock(&nearest_to_limit.lock);
}

/* Fails if GOT differs from WANT by more than ABSOLUTE + RELATIVE |want|, or for a NaN. */
static inline void expect_close(const char *what, size_t index, double got, double want, double relative,
                                double absolute) {
    const double off = fabs(got - want), allowed = absolute + relative * fabs(want);
    if (off > nearest_to_limit.share * allowed) note_nearest(allowed > 0 ? off / allowed : INFINITY, what, got, want);
    if (!(off <= allowed)) fail_msg("%s, element %zu: %.9g instead of %.9g", what, index, got, want);
}

#endif
