/* reduce.c - sums and maxima of several arrays, element by element in the arrays' order: host code, and once more for
 * devices. The build defines SL_REDUCE, the function's name.
 *
 * Elements are taken a block at a time that stays in the first-level cache: the block is widened from the first array,
 * the others are added to it, the result is narrowed into every output. The order of the additions is that of the
 * arrays, whatever the block: results repeat bit for bit. */
#include "collectives/reduce.h"
#include "spmd/base/dtype.h"
#include "spmd/device/offload.h"

/* As an array of pointers is handed to a device. */
struct arrays {
    const void *input[SL_MAX_COORDINATES];
    void *output[SL_MAX_COORDINATES];
};

struct work {
    enum sl_reduction reduction;
    float scale;
    size_t count;
    int inputs, outputs;
};

/* ---- f32 and bf16: the callers pass a constant DTYPE, so that loops are made for each ---- */

/* NaN where either is. */
SL_INLINE float larger(float a, float b) { return b > a || b != b ? b : a; }

SL_INLINE void combine(enum sl_dtype dtype, enum sl_reduction reduction, size_t begin, size_t n, const void *in,
                       float *sum) {
    switch (reduction) {
    case SL_NO_REDUCTION:
        break;
    case SL_SUM:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] += sl_load_float(dtype, in, begin + i);
        break;
    case SL_MAXIMUM:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = larger(sum[i], sl_load_float(dtype, in, begin + i));
        break;
    }
}

SL_INLINE void reduce_floats(enum sl_dtype dtype, struct work r, struct arrays arrays) {
    const size_t count = r.count;
    const int inputs = r.inputs, outputs = r.outputs;
    const enum sl_reduction reduction = r.reduction;
    const float scale = r.scale;
    SL_BLOCKS(map(to : arrays))
    for (size_t begin = 0; begin < count; begin += SL_BLOCK) {
        const size_t n = count - begin < SL_BLOCK ? count - begin : SL_BLOCK;
        float sum[SL_BLOCK];
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = sl_load_float(dtype, arrays.input[0], begin + i);
        for (int k = 1; k < inputs; k++) combine(dtype, reduction, begin, n, arrays.input[k], sum);
        for (int k = 0; k < outputs; k++) {
            SL_IN_BLOCK()
            for (size_t i = 0; i < n; i++)
                sl_store_float(dtype, arrays.output[k], begin + i, scale == 1 ? sum[i] : sum[i] * scale);
        }
    }
}

/* ---- i32: sums wrap around, and are not scaled ---- */

SL_INLINE void combine_integers(enum sl_reduction reduction, size_t n, const uint32_t *in, uint32_t *sum) {
    switch (reduction) {
    case SL_NO_REDUCTION:
        break;
    case SL_SUM:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] += in[i];
        break;
    case SL_MAXIMUM:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = (int32_t)in[i] > (int32_t)sum[i] ? in[i] : sum[i];
        break;
    }
}

static void reduce_integers(struct work r, struct arrays arrays) {
    const size_t count = r.count;
    const int inputs = r.inputs, outputs = r.outputs;
    const enum sl_reduction reduction = r.reduction;
    SL_BLOCKS(map(to : arrays))
    for (size_t begin = 0; begin < count; begin += SL_BLOCK) {
        const size_t n = count - begin < SL_BLOCK ? count - begin : SL_BLOCK;
        const uint32_t *first = (const uint32_t *)arrays.input[0] + begin;
        uint32_t sum[SL_BLOCK];
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = first[i];
        for (int k = 1; k < inputs; k++) combine_integers(reduction, n, (const uint32_t *)arrays.input[k] + begin, sum);
        for (int k = 0; k < outputs; k++) {
            uint32_t *out = (uint32_t *)arrays.output[k] + begin;
            SL_IN_BLOCK()
            for (size_t i = 0; i < n; i++) out[i] = sum[i];
        }
    }
}

/* ---- all ---- */

void SL_REDUCE(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output) {
    const struct work work = {reduction, scale, count, inputs, outputs};
    struct arrays arrays = {0};
    for (int k = 0; k < inputs; k++) arrays.input[k] = input[k];
    for (int k = 0; k < outputs; k++) arrays.output[k] = output[k];
    switch (dtype) {
    case SL_F32:
        reduce_floats(SL_F32, work, arrays);
        return;
    case SL_BF16:
        reduce_floats(SL_BF16, work, arrays);
        return;
    case SL_I32:
        reduce_integers(work, arrays);
        return;
    }
}
