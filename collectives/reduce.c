/* reduce.c - sums and maxima of several arrays, element by element in the arrays' order.
 *
 * Elements are taken a block at a time that stays in the first-level cache: the block is widened from the first array,
 * the others are added to it, the result is narrowed into every output. The order of the additions is that of the
 * arrays, whatever the block: results repeat bit for bit. */
#include "collectives/reduce.h"
#include "spmd/bf16.h"

#include <string.h>

enum { BLOCK = 1024 }; /* elements */

union wide {
    float f[BLOCK];
    uint32_t i[BLOCK]; /* i32 sums wrap around */
};

struct arithmetic {
    void (*load)(union wide *sum, const void *in, size_t n);
    void (*add)(union wide *sum, const void *in, size_t n);
    void (*max)(union wide *sum, const void *in, size_t n);
    void (*scale)(union wide *sum, float scale, size_t n);
    void (*store)(void *out, const union wide *sum, size_t n);
};

/* NaN where either is. */
static inline float max(float a, float b) { return b > a || b != b ? b : a; }

/* ---- f32 ---- */

static void load_f32(union wide *sum, const void *in, size_t n) { memcpy(sum->f, in, n * sizeof(float)); }

static void add_f32(union wide *sum, const void *in, size_t n) {
    const float *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->f[i] += x[i];
}

static void max_f32(union wide *sum, const void *in, size_t n) {
    const float *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->f[i] = max(sum->f[i], x[i]);
}

static void scale_float(union wide *sum, float scale, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->f[i] *= scale;
}

static void store_f32(void *out, const union wide *sum, size_t n) { memcpy(out, sum->f, n * sizeof(float)); }

/* ---- bf16 ---- */

static void load_bf16(union wide *sum, const void *in, size_t n) {
    const uint16_t *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->f[i] = sl_float_of_bf16(x[i]);
}

static void add_bf16(union wide *sum, const void *in, size_t n) {
    const uint16_t *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->f[i] += sl_float_of_bf16(x[i]);
}

static void max_bf16(union wide *sum, const void *in, size_t n) {
    const uint16_t *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->f[i] = max(sum->f[i], sl_float_of_bf16(x[i]));
}

static void store_bf16(void *out, const union wide *sum, size_t n) {
    uint16_t *y = out;
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = sl_bf16_of_float(sum->f[i]);
}

/* ---- i32 ---- */

static void load_i32(union wide *sum, const void *in, size_t n) { memcpy(sum->i, in, n * sizeof(uint32_t)); }

static void add_i32(union wide *sum, const void *in, size_t n) {
    const uint32_t *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->i[i] += x[i];
}

static void max_i32(union wide *sum, const void *in, size_t n) {
    const uint32_t *x = in;
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum->i[i] = (int32_t)x[i] > (int32_t)sum->i[i] ? x[i] : sum->i[i];
}

static void scale_i32(union wide *sum, float scale, size_t n) { (void)sum, (void)scale, (void)n; }

static void store_i32(void *out, const union wide *sum, size_t n) { memcpy(out, sum->i, n * sizeof(uint32_t)); }

/* ---- all ---- */

static const struct arithmetic of_dtype[] = {
    [SL_F32] = {load_f32, add_f32, max_f32, scale_float, store_f32},
    [SL_BF16] = {load_bf16, add_bf16, max_bf16, scale_float, store_bf16},
    [SL_I32] = {load_i32, add_i32, max_i32, scale_i32, store_i32},
};

void sl_reduce(enum sl_operation operation, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output) {
    const struct arithmetic *arithmetic = &of_dtype[dtype];
    const size_t size = sl_dtype_size(dtype);
    union wide sum;
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        const size_t n = count - begin < BLOCK ? count - begin : BLOCK, offset = begin * size;
        arithmetic->load(&sum, (const char *)input[0] + offset, n);
        for (int k = 1; k < inputs; k++) {
            const void *in = (const char *)input[k] + offset;
            if (operation == SL_PMAX) {
                arithmetic->max(&sum, in, n);
            } else {
                arithmetic->add(&sum, in, n);
            }
        }
        if (scale != 1) arithmetic->scale(&sum, scale, n);
        for (int k = 0; k < outputs; k++) arithmetic->store((char *)output[k] + offset, &sum, n);
    }
}
