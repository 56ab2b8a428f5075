/* reduce.c - sums and maxima of several arrays, element by element in the arrays' order: host code, once per CPU level,
 * and once more for devices. The build defines SL_REDUCE, the function's name.
 *
 * Elements are processed in pieces, in registers: a piece is widened from the first array, the other arrays are added
 * to it, and the result is narrowed into every output. So each array passes through the core once. The order of the
 * additions is the order of the arrays, for any piece size: results repeat bit for bit. */
#include "collectives/sums/reduce.h"
#include "spmd/base/numbers/dtype.h"
#include "spmd/device/offload.h"

/* Elements per piece: they fill half the registers. */
#if defined(__AVX__)
enum { REGISTERS = 64 };
#else
enum { REGISTERS = 32 };
#endif
enum { PIECE = SL_BLOCK < REGISTERS ? SL_BLOCK : REGISTERS };
enum { FEW = 8 };                /* arrays: so few are passed one by one */
enum { SHALLOW = 6, DEEP = 20 }; /* waiting sums of a tree of up to 64, and of up to SL_MOST_COORDINATES, arrays */
_Static_assert(SL_MOST_COORDINATES <= 1 << DEEP, "as many arrays as can come");

/* ARRAY [arrays]: the inputs, then the outputs. */
struct work {
    struct sl_matrices matrices;
    int inputs, arrays;
    float scale;
    enum sl_reduction reduction;
};
struct work_and_arrays {
    struct work work;
    void *array[];
};
_Static_assert(sizeof(struct work) == sizeof(struct sl_matrices) + 4 * sizeof(int), "with nothing between its fields");

/* Offsets and number of elements of a block: up to SL_BLOCK columns of a row. */
struct place {
    size_t in, out, n;
};
SL_INLINE struct place place_of(const struct sl_matrices *m, size_t block) {
    if (m->count * m->rows == 1) {
        const size_t at = block * SL_BLOCK, left = m->columns - at;
        return (struct place){at, at, left < SL_BLOCK ? left : SL_BLOCK};
    }
    const size_t in_row = (m->columns + SL_BLOCK - 1) / SL_BLOCK;
    const size_t row = block / in_row, column = block % in_row * SL_BLOCK;
    const size_t matrix = row / m->rows, its = row % m->rows, left = m->columns - column;
    return (struct place){matrix * m->in[0] + its * m->in[1] + column, matrix * m->out[0] + its * m->out[1] + column,
                          left < SL_BLOCK ? left : SL_BLOCK};
}
static size_t blocks_of(const struct sl_matrices *m) {
    return m->count * m->rows * ((m->columns + SL_BLOCK - 1) / SL_BLOCK);
}

/* ---- f32 and bf16: callers pass a constant DTYPE, for loops per type ---- */

/* NaN if either is NaN. */
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
    case SL_TREE: /* never comes here */
        break;
    case SL_MAXIMUM:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = larger(sum[i], sl_load_float(dtype, in, begin + i));
        break;
    }
}

/* Sums in tree order. A sum of 1, 2, 4, ... arrays waits for the next sum of as many, like the digits of a binary
 * counter of the arrays. */
SL_INLINE void sum_tree(enum sl_dtype dtype, int inputs, void *const *array, size_t begin, size_t n, float *sum) {
    float waiting[DEEP][PIECE];
    int waits = 0;
    for (int k = 0; k < inputs; k++) {
        const void *in = array[k];
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = sl_load_float(dtype, in, begin + i);
        for (int pairs = k; waits && (pairs & 1 || k == inputs - 1); pairs >>= 1) {
            const float *before = waiting[--waits];
            SL_IN_BLOCK()
            for (size_t i = 0; i < n; i++) sum[i] = before[i] + sum[i];
        }
        if (k == inputs - 1) return;
        float *const next = waiting[waits++];
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) next[i] = sum[i];
    }
}

/* The same for one element: visits all digits without a branch, so waiting sums need no memory. */
SL_INLINE float sum_tree_of_one(enum sl_dtype dtype, const int deep, int inputs, void *const *array, size_t at) {
    float waiting[DEEP] = {0}, sum = 0.0f;
    for (int k = 0; k < inputs; k++) {
        bool carries = true;
        sum = sl_load_float(dtype, array[k], at);
        SL_UNROLLED
        for (int digit = 0; digit < deep; digit++) {
            const bool waits = carries && k >> digit & 1, stays = carries && !waits && k < inputs - 1;
            const float both = waits ? waiting[digit] + sum : sum;
            waiting[digit] = stays ? sum : waiting[digit];
            sum = both;
            carries = carries && !stays;
        }
    }
    return sum;
}

/* Loops over the arrays K from FIRST up to END, except array 0. MOST is a constant: 0, or beyond the largest K; then
 * the loop body is unrolled into a copy per K, which knows its array, and a GPU's threads need not keep the list in
 * memory. Array 0, the first input, is read before; of MOST arrays at least one is an output. */
#define FOR_ARRAYS(k, first, end, most)                                                                                \
    SL_UNROLLED                                                                                                        \
    for (int k = (most) ? 1 : (first); k < ((most) ? (most) : (end)); k++)                                             \
        if (!(most) || (k >= (first) && k < (end)))
#define FOR_INPUTS(k, work, most) FOR_ARRAYS(k, 1, (work)->inputs, (most) ? (most) - 1 : 0)
#define FOR_OUTPUTS(k, work, most) FOR_ARRAYS(k, (work)->inputs, (work)->arrays, most)

/* Orders of summation other than the arrays' own, which is called ordered. */
enum order { IN_BLOCKS, BY_TREE, BY_DEEP_TREE };

enum { SUM_LEVELS = 4 }; /* SL_SUM_BLOCK to this power exceeds the number of arrays */

SL_INLINE void add_or_copy(size_t n, bool add, const float *x, float *sum) {
    if (add) {
        for (size_t i = 0; i < n; i++) sum[i] += x[i];
    } else {
        for (size_t i = 0; i < n; i++) sum[i] = x[i];
    }
}

/* SL_SUM_BLOCK arrays are added in their order, then the sums of SL_SUM_BLOCK such blocks, and so on: each level has
 * one open sum. Adds X [n], number K of INPUTS, to LEVEL [SUM_LEVELS, n]; after the last X, the last level is the sum
 * of all. */
SL_INLINE void add_to_blocks(size_t n, int k, int inputs, const float *x, float *level) {
    add_or_copy(n, k % SL_SUM_BLOCK != 0, x, level);
    int done = k + 1;
    for (int l = 1; l < SUM_LEVELS && (done % SL_SUM_BLOCK == 0 || k == inputs - 1); l++, level += n) {
        const int block = (done - 1) / SL_SUM_BLOCK;
        add_or_copy(n, block % SL_SUM_BLOCK != 0, level, level + n);
        done = block + 1;
    }
}

SL_INLINE void sum_in_blocks(enum sl_dtype dtype, int inputs, void *const *array, size_t begin, size_t n, float *sum) {
    float level[SUM_LEVELS * PIECE];
    for (int k = 0; k < inputs; k++) {
        for (size_t i = 0; i < n; i++) sum[i] = sl_load_float(dtype, array[k], begin + i);
        add_to_blocks(n, k, inputs, sum, level);
    }
    for (size_t i = 0; i < n; i++) sum[i] = level[(SUM_LEVELS - 1) * n + i];
}

/* Reduces the piece of N elements at offsets IN and OUT. ORDERED and ORDER are constants, and so is N in full pieces.
 */
SL_INLINE void reduce_piece(enum sl_dtype dtype, enum sl_reduction reduction, const bool ordered,
                            const enum order order, const int most, const struct work *r, void *const *array, size_t in,
                            size_t out, size_t n) {
    const float scale = r->scale;
    float sum[PIECE];
    if (ordered) {
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = sl_load_float(dtype, array[0], in + i);
        FOR_INPUTS(k, r, most) combine(dtype, reduction, in, n, array[k], sum);
    } else if (order == IN_BLOCKS) {
        sum_in_blocks(dtype, r->inputs, array, in, n, sum);
    } else if (SL_BLOCK == 1) {
        sum[0] = sum_tree_of_one(dtype, order == BY_TREE ? SHALLOW : DEEP, r->inputs, array, in);
    } else {
        sum_tree(dtype, r->inputs, array, in, n, sum);
    }
    if (scale != 1) {
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] *= scale;
    }
    FOR_OUTPUTS(k, r, most) {
        void *output = array[k];
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sl_store_float(dtype, output, out + i, sum[i]);
    }
}

SL_INLINE void reduce_floats(enum sl_dtype dtype, enum sl_reduction reduction, const bool ordered,
                             const enum order order, const int most, const struct work *r, void *const *array,
                             size_t block) {
    const struct place p = place_of(&r->matrices, block);
    size_t at = 0;
    for (; at + PIECE <= p.n; at += PIECE)
        reduce_piece(dtype, reduction, ordered, order, most, r, array, p.in + at, p.out + at, PIECE);
    if (PIECE > 1 && at < p.n)
        reduce_piece(dtype, reduction, ordered, order, most, r, array, p.in + at, p.out + at, p.n - at);
}

/* ---- i32: sums wrap around, and are not scaled ---- */

SL_INLINE void combine_integers(enum sl_reduction reduction, size_t n, const uint32_t *in, uint32_t *sum) {
    switch (reduction) {
    case SL_NO_REDUCTION:
        break;
    case SL_SUM:
    case SL_TREE:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] += in[i];
        break;
    case SL_MAXIMUM:
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) sum[i] = (int32_t)in[i] > (int32_t)sum[i] ? in[i] : sum[i];
        break;
    }
}

SL_INLINE void reduce_integers(const int most, const struct work *r, void *const *array, size_t block) {
    const struct place p = place_of(&r->matrices, block);
    const size_t n = p.n;
    const uint32_t *first = (const uint32_t *)array[0] + p.in;
    uint32_t sum[SL_BLOCK];
    SL_IN_BLOCK()
    for (size_t i = 0; i < n; i++) sum[i] = first[i];
    FOR_INPUTS(k, r, most) combine_integers(r->reduction, n, (const uint32_t *)array[k] + p.in, sum);
    FOR_OUTPUTS(k, r, most) {
        uint32_t *out = (uint32_t *)array[k] + p.out;
        SL_IN_BLOCK()
        for (size_t i = 0; i < n; i++) out[i] = sum[i];
    }
}

/* ---- all types ---- */

SL_INLINE void reduce_block(enum sl_dtype dtype, enum sl_reduction reduction, const int most, const struct work *r,
                            void *const *array, size_t block) {
    if (dtype == SL_I32)
        reduce_integers(most, r, array, block);
    else
        reduce_floats(dtype, reduction, true, IN_BLOCKS, most, r, array, block);
}

/* Copies the list to memory for a target region; a device keeps it after the first time. */
SL_INLINE const struct work_and_arrays *in_reach(const struct work_and_arrays *r) {
    const size_t bytes = offsetof(struct work_and_arrays, array) + (size_t)r->work.arrays * sizeof *r->array;
    return SL_PARAMETERS ? sl_device.constant(r, bytes) : r;
}

SL_INLINE void reduce_many(enum sl_dtype dtype, enum sl_reduction reduction, const struct work_and_arrays *all) {
    const size_t blocks = blocks_of(&all->work.matrices);
    const struct work_and_arrays *r = in_reach(all);
    SL_BLOCKS(is_device_ptr(r))
    for (size_t block = 0; block < blocks; block++) reduce_block(dtype, reduction, 0, &r->work, r->array, block);
}

/* On a device, the list is passed as parameters of the launch. */
SL_INLINE void reduce_few(enum sl_dtype dtype, enum sl_reduction reduction, const struct work_and_arrays *r) {
    const struct sl_matrices *m = &r->work.matrices;
    const size_t matrices = m->count, rows = m->rows, columns = m->columns, blocks = blocks_of(m);
    const size_t in_matrix = m->in[0], in_row = m->in[1], out_matrix = m->out[0], out_row = m->out[1];
    const int inputs = r->work.inputs, arrays = r->work.arrays;
    const float scale = r->work.scale;
    void *a = r->array[0], *b = r->array[1], *c = r->array[2], *d = r->array[3];
    void *e = r->array[4], *f = r->array[5], *g = r->array[6], *h = r->array[7];
    SL_BLOCKS(is_device_ptr(a, b, c, d, e, f, g, h))
    for (size_t block = 0; block < blocks; block++) {
        const struct work work = {
            {matrices, rows, columns, {in_matrix, in_row}, {out_matrix, out_row}}, inputs, arrays, scale, reduction};
        void *const array[] = {a, b, c, d, e, f, g, h};
        _Static_assert(sizeof array / sizeof *array == FEW, "all of them");
        reduce_block(dtype, reduction, FEW, &work, array, block);
    }
}

/* Sums in orders other than the arrays': a separate kernel, since waiting sums need memory. */
SL_INLINE void reduce_in(enum sl_dtype dtype, const enum order order, const struct work_and_arrays *all) {
    const size_t blocks = blocks_of(&all->work.matrices);
    const struct work_and_arrays *r = in_reach(all);
    SL_BLOCKS(is_device_ptr(r))
    for (size_t block = 0; block < blocks; block++)
        reduce_floats(dtype, SL_SUM, false, order, 0, &r->work, r->array, block);
}

SL_INLINE void reduce(enum sl_dtype dtype, enum sl_reduction reduction, const struct work_and_arrays *r) {
    if (reduction == SL_TREE && dtype != SL_I32 && r->work.inputs <= 1 << SHALLOW)
        reduce_in(dtype, BY_TREE, r);
    else if (reduction == SL_TREE && dtype != SL_I32)
        reduce_in(dtype, BY_DEEP_TREE, r);
    else if (reduction == SL_SUM && dtype != SL_I32 && r->work.inputs > SL_SUM_BLOCK)
        reduce_in(dtype, IN_BLOCKS, r);
    else if (SL_PARAMETERS && r->work.arrays <= FEW)
        reduce_few(dtype, reduction, r);
    else
        reduce_many(dtype, reduction, r);
}

void SL_REDUCE(enum sl_reduction reduction, enum sl_dtype dtype, float scale, const struct sl_matrices *matrices,
               int inputs, const void *const *input, int outputs, void *const *output) {
    const size_t arrays = (size_t)(inputs + outputs > FEW ? inputs + outputs : FEW);
    struct work_and_arrays *all = __builtin_alloca(sizeof *all + arrays * sizeof *all->array);
    all->work = (struct work){*matrices, inputs, inputs + outputs, scale, reduction};
    for (int k = 0; k < inputs; k++) all->array[k] = (void *)(uintptr_t)input[k];
    for (int k = 0; k < outputs; k++) all->array[inputs + k] = output[k];
    for (int k = inputs + outputs; k < FEW; k++) all->array[k] = output[0];
    switch (dtype) {
    case SL_F32:
        if (reduction == SL_SUM)
            reduce(SL_F32, SL_SUM, all);
        else if (reduction == SL_TREE)
            reduce(SL_F32, SL_TREE, all);
        else
            reduce(SL_F32, reduction, all);
        return;
    case SL_BF16:
        reduce(SL_BF16, reduction, all);
        return;
    case SL_F16:
        reduce(SL_F16, reduction, all);
        return;
    case SL_I32:
        reduce(SL_I32, reduction, all);
        return;
    case SL_QUANTIZED: /* never communicated */
        return;
    }
}
