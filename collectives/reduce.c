/* reduce.c - sums and maxima of several arrays, element by element in the arrays' order: host code, once per CPU
 * level, and once more for devices. The build defines SL_REDUCE, the function's name.
 *
 * Elements are taken a piece at a time that stays in registers: it is widened from the first array, the others are
 * added to it, the result is narrowed into every output. So each array passes through the core once. The order of the
 * additions is that of the arrays, whatever the piece: results repeat bit for bit. */
#include "collectives/reduce.h"
#include "spmd/base/dtype.h"
#include "spmd/device/offload.h"

/* Elements: of these, half the registers. */
#if defined(__AVX__)
enum { REGISTERS = 64 };
#else
enum { REGISTERS = 32 };
#endif
enum { PIECE = SL_BLOCK < REGISTERS ? SL_BLOCK : REGISTERS };

/* As it is handed to a device, in one copy. ARRAY: the inputs, then the outputs. */
struct work {
    struct sl_matrices matrices;
    int inputs, arrays;
    float scale;
    enum sl_reduction reduction;
    void *array[2 * SL_MAX_COORDINATES];
};

/* Where the elements of a block lie: BLOCK is one of SL_BLOCK columns of a row, or of what is left of it. */
struct place {
    size_t in, out, n;
};
SL_INLINE struct place place_of(const struct sl_matrices *m, size_t block) {
    const size_t in_row = (m->columns + SL_BLOCK - 1) / SL_BLOCK;
    const size_t row = block / in_row, column = block % in_row * SL_BLOCK;
    const size_t matrix = row / m->rows, its = row % m->rows, left = m->columns - column;
    return (struct place){matrix * m->in[0] + its * m->in[1] + column, matrix * m->out[0] + its * m->out[1] + column,
                          left < SL_BLOCK ? left : SL_BLOCK};
}
static size_t blocks_of(const struct sl_matrices *m) {
    return m->count * m->rows * ((m->columns + SL_BLOCK - 1) / SL_BLOCK);
}

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

/* The piece of N elements from IN and OUT on; whole pieces come with a constant N. */
SL_INLINE void reduce_piece(enum sl_dtype dtype, enum sl_reduction reduction, const struct work *r, size_t in,
                            size_t out, size_t n) {
    const float scale = r->scale;
    float sum[PIECE];
    SL_IN_BLOCK()
    for (size_t i = 0; i < n; i++) sum[i] = sl_load_float(dtype, r->array[0], in + i);
    for (int k = 1; k < r->inputs; k++) combine(dtype, reduction, in, n, r->array[k], sum);
    if (scale != 1) {
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] *= scale;
    }
    for (int k = r->inputs; k < r->arrays; k++) {
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sl_store_float(dtype, r->array[k], out + i, sum[i]);
    }
}

SL_INLINE void reduce_floats(enum sl_dtype dtype, enum sl_reduction reduction, const struct work *r) {
    const size_t blocks = blocks_of(&r->matrices);
    SL_BLOCKS(map(to : r[:1]))
    for (size_t block = 0; block < blocks; block++) {
        const struct place p = place_of(&r->matrices, block);
        size_t at = 0;
        for (; at + PIECE <= p.n; at += PIECE) reduce_piece(dtype, reduction, r, p.in + at, p.out + at, PIECE);
        if (at < p.n) reduce_piece(dtype, reduction, r, p.in + at, p.out + at, p.n - at);
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

static void reduce_integers(const struct work *r) {
    const size_t blocks = blocks_of(&r->matrices);
    SL_BLOCKS(map(to : r[:1]))
    for (size_t block = 0; block < blocks; block++) {
        const struct place p = place_of(&r->matrices, block);
        const size_t n = p.n;
        const uint32_t *first = (const uint32_t *)r->array[0] + p.in;
        uint32_t sum[SL_BLOCK];
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = first[i];
        for (int k = 1; k < r->inputs; k++)
            combine_integers(r->reduction, n, (const uint32_t *)r->array[k] + p.in, sum);
        for (int k = r->inputs; k < r->arrays; k++) {
            uint32_t *out = (uint32_t *)r->array[k] + p.out;
            SL_IN_BLOCK()
            for (size_t i = 0; i < n; i++) out[i] = sum[i];
        }
    }
}

/* ---- all ---- */

void SL_REDUCE(enum sl_reduction reduction, enum sl_dtype dtype, float scale, const struct sl_matrices *matrices,
               int inputs, const void *const *input, int outputs, void *const *output) {
    struct work work; /* what lies beyond the numbers is not read */
    work.matrices = *matrices, work.scale = scale, work.reduction = reduction;
    work.inputs = inputs, work.arrays = inputs + outputs;
    for (int k = 0; k < inputs; k++) work.array[k] = (void *)(uintptr_t)input[k];
    for (int k = 0; k < outputs; k++) work.array[inputs + k] = output[k];
    switch (dtype) {
    case SL_F32:
        if (reduction == SL_SUM)
            reduce_floats(SL_F32, SL_SUM, &work);
        else
            reduce_floats(SL_F32, reduction, &work);
        return;
    case SL_BF16:
        reduce_floats(SL_BF16, reduction, &work);
        return;
    case SL_F16:
        reduce_floats(SL_F16, reduction, &work);
        return;
    case SL_I32:
        reduce_integers(&work);
        return;
    }
}
