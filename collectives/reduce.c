/* reduce.c - sums and maxima of several arrays, element by element in the arrays' order: host code, once per CPU
 * level, and once more for devices. The build defines SL_REDUCE, the function's name.
 *
 * Elements are taken a piece at a time that stays in registers: it is widened from the first array, the others are
 * added to it, the result is narrowed into every output. So each array passes through the core once. The order of the
 * additions is that of the arrays, whatever the piece: results repeat bit for bit. */
#include "collectives/reduce.h"
#include "spmd/base/dtype.h"
#include "spmd/device/offload.h"

/* As an array of pointers is handed to a device. */
struct arrays {
    const void *input[SL_MAX_COORDINATES];
    void *output[SL_MAX_COORDINATES];
};

/* Elements: of these, half the registers. */
#if defined(__AVX__)
enum { REGISTERS = 64 };
#else
enum { REGISTERS = 32 };
#endif
enum { PIECE = SL_BLOCK < REGISTERS ? SL_BLOCK : REGISTERS };

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

/* The piece of N elements from BEGIN on; whole pieces come with a constant N. */
SL_INLINE void reduce_piece(enum sl_dtype dtype, enum sl_reduction reduction, const struct work *r,
                            const struct arrays *arrays, size_t begin, size_t n) {
    const float scale = r->scale;
    float sum[PIECE];
    SL_IN_BLOCK()
    for (size_t i = 0; i < n; i++) sum[i] = sl_load_float(dtype, arrays->input[0], begin + i);
    for (int k = 1; k < r->inputs; k++) combine(dtype, reduction, begin, n, arrays->input[k], sum);
    if (scale != 1) {
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] *= scale;
    }
    for (int k = 0; k < r->outputs; k++) {
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sl_store_float(dtype, arrays->output[k], begin + i, sum[i]);
    }
}

SL_INLINE void reduce_floats(enum sl_dtype dtype, enum sl_reduction reduction, struct work r, struct arrays arrays) {
    const size_t count = r.count;
    SL_BLOCKS(map(to : arrays, r))
    for (size_t begin = 0; begin < count; begin += SL_BLOCK) {
        const size_t end = count - begin < SL_BLOCK ? count : begin + SL_BLOCK;
        size_t at = begin;
        for (; at + PIECE <= end; at += PIECE) reduce_piece(dtype, reduction, &r, &arrays, at, PIECE);
        if (at < end) reduce_piece(dtype, reduction, &r, &arrays, at, end - at);
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
    struct arrays arrays; /* what lies beyond the numbers is not read */
    for (int k = 0; k < inputs; k++) arrays.input[k] = input[k];
    for (int k = 0; k < outputs; k++) arrays.output[k] = output[k];
    switch (dtype) {
    case SL_F32:
        if (reduction == SL_SUM)
            reduce_floats(SL_F32, SL_SUM, work, arrays);
        else
            reduce_floats(SL_F32, reduction, work, arrays);
        return;
    case SL_BF16:
        reduce_floats(SL_BF16, reduction, work, arrays);
        return;
    case SL_F16:
        reduce_floats(SL_F16, reduction, work, arrays);
        return;
    case SL_I32:
        reduce_integers(work, arrays);
        return;
    }
}
