/* slices_internal.h - sums of columns, divided so that devices have work for all their threads.
 *
 * A team has SL_COLUMNS columns. Each of its threads walks down SL_BLOCK of them, through one of SL_SLICES slices of
 * the rows; what the slices sum up is added in their order. So a device keeps an order of its own, always the same. On
 * the host there is one slice, of all rows, and it is added up nowhere. */
#ifndef SL_LAYERS_KERNELS_ROWS_SLICES_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_SLICES_INTERNAL_H

#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

enum {
    SLICED = SL_SLICES > 1,
    ACROSS = SL_COLUMNS / SL_BLOCK, /* threads that share a slice */
    SLICE_THREADS = SL_SLICES * ACROSS,
    SLICE_SUMS = SL_SLICES * SL_COLUMNS,
};

SL_INLINE size_t column_groups(size_t cols) { return (cols + SL_COLUMNS - 1) / SL_COLUMNS; }

/* A thread's part: COUNT columns from FIRST on, of the rows [begin, end); none where there is no column FIRST. LEADS:
 * they are the first rows. */
struct slice {
    size_t first, count, begin, end;
    bool leads;
};

/* Of thread T of the team that has the columns from GROUP on. */
SL_INLINE struct slice slice_of(size_t rows, size_t cols, size_t group, size_t t) {
    const size_t each = (rows + SL_SLICES - 1) / SL_SLICES, begin = t / ACROSS * each, end = begin + each;
    const size_t first = group + t % ACROSS * SL_BLOCK, left = first < cols ? cols - first : 0;
    return (struct slice){.first = first,
                          .count = SL_BLOCK == 1     ? 1
                                   : left < SL_BLOCK ? left
                                                     : SL_BLOCK, /* the compiler is to know */
                          .begin = begin < rows ? begin : rows,
                          .end = end < rows ? end : rows,
                          .leads = t < ACROSS};
}

/* Where thread T leaves its sums: in SLICES [SLICE_SUMS], or, where there is but one slice, in SUMS [cols]. */
SL_INLINE float *slice_sums(float *slices, float *sums, size_t t, size_t first) {
    return SLICED ? slices + t * SL_BLOCK : sums + first;
}

/* Sums [cols] from GROUP on. */
SL_INLINE void add_slices(const float *slices, size_t cols, size_t group, float *sums) {
    const size_t count = !SLICED ? 0 : cols - group < SL_COLUMNS ? cols - group : SL_COLUMNS;
    SL_LANES()
    for (size_t c = 0; c < count; c++) {
        float sum = slices[c];
        for (size_t s = 1; s < SL_SLICES; s++) sum += slices[s * SL_COLUMNS + c];
        sums[group + c] = sum;
    }
}

#endif
