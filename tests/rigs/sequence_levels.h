/* sequence_levels.h - every CPU level's kernels for token sequences, in turn; sums over shards. */
#ifndef SL_TESTS_RIGS_SEQUENCE_LEVELS_H
#define SL_TESTS_RIGS_SEQUENCE_LEVELS_H

#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"

#include <stdio.h>

static const size_t shapes[][2] = {{1, 1}, {3, 2}, {2, 10}, {5, 33}, {7, 64}, {3, 512}, {4, 1100}}; /* rows, columns */
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* KERNELS is every level's table for sequences in turn. */
#define FOR_EACH_LEVEL(kernels)                                                                                        \
    for (int level = 0; level >= 0; level = -1)                                                                        \
        for (const struct sl_sequence_kernels *kernels; (kernels = table_of(level)); level++)

static inline const struct sl_sequence_kernels *table_of(int level) {
    const struct sl_kernels *kernels = sl_kernels_available(level);
    return kernels ? kernels->sequence : NULL;
}

static inline const char *at_level(int level, const char *what) {
    static char name[80];
    snprintf(name, sizeof name, "%s %s", sl_kernels_available(level)->name, what);
    return name;
}

/* Replaces each part's values by the sum over all parts, as a psum does. */
static inline void psum(int parts, size_t n, float *const *values) {
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int p = 0; p < parts; p++) sum += values[p][i];
        for (int p = 0; p < parts; p++) values[p][i] = sum;
    }
}

#endif
