/* reduce_select.c - selects the summing functions for the process's CPU. All levels give the same bits. */
#include "collectives/sums/reduce.h"
#include "collectives/sums/sums.h"
#include "spmd/base/cpu_level.h"

typedef void reduce(enum sl_reduction, enum sl_dtype, float scale, const struct sl_matrices *, int inputs,
                    const void *const *input, int outputs, void *const *output);
reduce sl_reduce_v2, sl_reduce_v3, sl_reduce_v4;
typedef void add_rows(size_t rows, size_t columns, int members, const float *const *x, size_t stride, bool accumulate,
                      float *y, size_t y_stride);
add_rows sl_add_rows_v2, sl_add_rows_v3, sl_add_rows_v4;

enum { FEW = 512 }; /* elements: fewer are summed faster than the level is found */

/* Whether two arrays are summed in place. Wide vectors sum such pairs faster; if more arrays stream through memory,
 * wide vectors have been measured to be slower than narrow ones. */
static bool is_pair_in_place(int inputs, const void *const *input, int outputs, void *const *output) {
    return inputs == 2 && outputs == 2 && input[0] == output[0] && input[1] == output[1];
}

void sl_reduce_matrices(enum sl_reduction reduction, enum sl_dtype dtype, float scale,
                        const struct sl_matrices *matrices, int inputs, const void *const *input, int outputs,
                        void *const *output) {
    reduce *const levels[] = {sl_reduce_v2, sl_reduce_v3, sl_reduce_v4};
    const bool wide = matrices->columns >= FEW && is_pair_in_place(inputs, input, outputs, output);
    levels[wide ? sl_cpu_level() - 2 : 0](reduction, dtype, scale, matrices, inputs, input, outputs, output);
}

void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output) {
    const struct sl_matrices matrices = sl_one_array(count);
    sl_reduce_matrices(reduction, dtype, scale, &matrices, inputs, input, outputs, output);
}

/* X and Y are one row. */
static void add_row_in_blocks(size_t columns, int members, const float *const *x, bool accumulate, float *y) {
    enum { PIECE = 256 };
    for (size_t at = 0; at < columns; at += PIECE) {
        const size_t n = columns - at < PIECE ? columns - at : PIECE;
        const void *input[members];
        float sum[PIECE], *output = accumulate ? sum : y + at;
        for (int i = 0; i < members; i++) input[i] = x[i] + at;
        sl_reduce(SL_SUM, SL_F32, 1, n, members, input, 1, (void *[]){output});
        for (size_t i = 0; i < n && accumulate; i++) y[at + i] += sum[i];
    }
}

/* For more than SL_SUM_BLOCK members. */
static void add_rows_in_blocks(size_t rows, size_t columns, int members, const float *const *x, size_t stride,
                               bool accumulate, float *y, size_t y_stride) {
    for (size_t row = 0; row < rows; row++) {
        const float *its[members];
        for (int i = 0; i < members; i++) its[i] = x[i] + row * stride;
        add_row_in_blocks(columns, members, its, accumulate, y + row * y_stride);
    }
}

void sl_add_rows(size_t rows, size_t columns, int members, const float *const *x, size_t stride, bool accumulate,
                 float *y, size_t y_stride) {
    if (members > SL_SUM_BLOCK) {
        add_rows_in_blocks(rows, columns, members, x, stride, accumulate, y, y_stride);
        return;
    }
    add_rows *const levels[] = {sl_add_rows_v2, sl_add_rows_v3, sl_add_rows_v4};
    levels[rows * columns < FEW ? 0 : sl_cpu_level() - 2](rows, columns, members, x, stride, accumulate, y, y_stride);
}
