/* slices_internal.h - column sums, divided so that all threads of a device have work.
 *
 * A team has SL_COLUMNS columns. Each of its threads walks down SL_BLOCK of these columns, through one of SL_SLICES
 * slices of the rows; then the slices' sums are added in order. So a device always adds in the same order of its own.
 * On the host one slice has all rows, and nothing is left to add.
 *
 * Many rows of few columns would give a device too few teams. Their rows are first divided into stripes, each with its
 * own slices and teams. The stripes' sums wait in the device's room until a second region adds them in order. The
 * number of stripes depends on rows and columns only. */
#ifndef SL_LAYERS_KERNELS_LOOPS_SLICES_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_SLICES_INTERNAL_H

#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

enum {
    SLICED = SL_SLICES > 1,
    ACROSS = SL_COLUMNS / SL_BLOCK, /* threads of a slice */
    SLICE_THREADS = SL_SLICES * ACROSS,
    SLICE_SUMS = SL_SLICES * SL_COLUMNS,
    TALL = 16 * SL_SLICES, /* fewest rows, */
    LARGE = 1 << 17,       /* and fewest elements, for a second region */
};

SL_INLINE size_t column_groups(size_t cols) { return (cols + SL_COLUMNS - 1) / SL_COLUMNS; }

SL_INLINE size_t stripes_of(size_t rows, size_t cols) {
    const size_t groups = column_groups(cols);
    return SLICED && rows >= TALL && rows * cols >= LARGE && groups < SL_TEAMS ? (SL_TEAMS + groups - 1) / groups : 1;
}

/* Returns how many of PARTS arrays [rows, cols], each with SUMS sums per column, have room for their stripes in the
 * device's room. */
SL_INLINE size_t parts_at_once(size_t parts, size_t rows, size_t cols, size_t sums) {
    const size_t stripes = stripes_of(rows, cols);
    const size_t most = stripes > 1 ? SL_DEVICE_ROOM / (stripes * sums * cols * sizeof(float)) : parts;
    return most < parts ? most : parts;
}

/* Rows of stripe STRIPE, counted over all parts: COUNT rows from FIRST on. */
struct stripe {
    size_t first, count;
};

SL_INLINE struct stripe stripe_of(size_t rows, size_t stripes, size_t stripe) {
    const size_t each = (rows + stripes - 1) / stripes, begin = stripe % stripes * each;
    const size_t left = begin < rows ? rows - begin : 0;
    return (struct stripe){stripe / stripes * rows + (begin < rows ? begin : rows), left < each ? left : each};
}

/* sums [parts, cols] (+)= sums over STRIPES of all [parts, stripes, cols] */
SL_INLINE void add_stripes(size_t parts, size_t stripes, size_t cols, const float *all, bool accumulate, float *sums) {
    SL_ELEMENTWISE(is_device_ptr(all, sums))
    for (size_t i = 0; i < parts * cols; i++) {
        const float *in = all + i / cols * stripes * cols + i % cols;
        float sum = accumulate ? sums[i] : 0.0f;
        for (size_t s = 0; s < stripes; s++) sum += in[s * cols];
        sums[i] = sum;
    }
}

/* A thread's columns and rows: COUNT columns from FIRST on, of the rows [begin, end); no work if FIRST >= cols. LEADS:
 * these are the first rows. */
struct slice {
    size_t first, count, begin, end;
    bool leads;
};

/* Returns the slice of thread T in the team whose columns begin at GROUP. */
SL_INLINE struct slice slice_of(size_t rows, size_t cols, size_t group, size_t t) {
    const size_t each = (rows + SL_SLICES - 1) / SL_SLICES, begin = t / ACROSS * each, end = begin + each;
    const size_t first = group + t % ACROSS * SL_BLOCK, left = first < cols ? cols - first : 0;
    return (struct slice){.first = first,
                          .count = SL_BLOCK == 1     ? 1
                                   : left < SL_BLOCK ? left
                                                     : SL_BLOCK, /* a constant for the compiler */
                          .begin = begin < rows ? begin : rows,
                          .end = end < rows ? end : rows,
                          .leads = t < ACROSS};
}

/* Returns the address of thread T's sums: in SLICES [SLICE_SUMS], or, if there is only one slice, in SUMS [cols]. */
SL_INLINE float *slice_sums(float *slices, float *sums, size_t t, size_t first) {
    return SLICED ? slices + t * SL_BLOCK : sums + first;
}

/* Adds the slices' sums to sums [cols] from GROUP on. */
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
