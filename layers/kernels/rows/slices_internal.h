/* slices_internal.h - sums of columns, divided so that devices have work for all their threads.
 *
 * A team has SL_COLUMNS columns. Each of its threads walks down SL_BLOCK of them, through one of SL_SLICES slices of
 * the rows; what the slices sum up is added in their order. So a device keeps an order of its own, always the same. On
 * the host there is one slice, of all rows, and it is added up nowhere.
 *
 * Of many rows and few columns there would be too few teams for a device. So the rows are divided into stripes first,
 * each with slices and teams of its own. Their sums wait in the device's room until a second region adds them up in
 * their order. How many stripes there are depends on rows and columns alone. */
#ifndef SL_LAYERS_KERNELS_ROWS_SLICES_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_SLICES_INTERNAL_H

#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

enum {
    SLICED = SL_SLICES > 1,
    ACROSS = SL_COLUMNS / SL_BLOCK, /* threads that share a slice */
    SLICE_THREADS = SL_SLICES * ACROSS,
    SLICE_SUMS = SL_SLICES * SL_COLUMNS,
    TALL = 16 * SL_SLICES, /* rows, */
    LARGE = 1 << 17,       /* and elements, that are worth a second region */
};

SL_INLINE size_t column_groups(size_t cols) { return (cols + SL_COLUMNS - 1) / SL_COLUMNS; }

SL_INLINE size_t stripes_of(size_t rows, size_t cols) {
    const size_t groups = column_groups(cols);
    return SLICED && rows >= TALL && rows * cols >= LARGE && groups < SL_TEAMS ? (SL_TEAMS + groups - 1) / groups : 1;
}

/* Of PARTS arrays of [rows, cols], each with so many SUMS a column: how many the device's room has stripes for. */
SL_INLINE size_t parts_at_once(size_t parts, size_t rows, size_t cols, size_t sums) {
    const size_t stripes = stripes_of(rows, cols);
    const size_t most = stripes > 1 ? SL_DEVICE_ROOM / (stripes * sums * cols * sizeof(float)) : parts;
    return most < parts ? most : parts;
}

/* Where a team of stripe STRIPE of all parts' has its rows: COUNT from FIRST on. */
struct stripe {
    size_t first, count;
};

SL_INLINE struct stripe stripe_of(size_t rows, size_t stripes, size_t stripe) {
    const size_t each = (rows + stripes - 1) / stripes, begin = stripe % stripes * each;
    const size_t left = begin < rows ? rows - begin : 0;
    return (struct stripe){stripe / stripes * rows + (begin < rows ? begin : rows), left < each ? left : each};
}

/* sums [parts, cols] (+)= those of all STRIPES [parts, stripes, cols] */
SL_INLINE void add_stripes(size_t parts, size_t stripes, size_t cols, const float *all, bool accumulate, float *sums) {
    SL_ELEMENTWISE(is_device_ptr(all, sums))
    for (size_t i = 0; i < parts * cols; i++) {
        const float *in = all + i / cols * stripes * cols + i % cols;
        float sum = accumulate ? sums[i] : 0.0f;
        for (size_t s = 0; s < stripes; s++) sum += in[s * cols];
        sums[i] = sum;
    }
}

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
