/* kernel_levels.h - runs tests with the kernels of each level of this CPU, in turn. */
#ifndef SL_TESTS_RIGS_KERNEL_LEVELS_H
#define SL_TESTS_RIGS_KERNEL_LEVELS_H

#include "layers/kernels/kernels.h"

/* The build may name another list of tables. */
#if !defined(KERNELS)
#define KERNELS sl_kernels_available
#endif
extern const struct sl_kernels *KERNELS(int i);

/* Each level's table in turn, the best one first. */
#define FOR_EACH_LEVEL(kernels)                                                                                        \
    for (int level = 0; level >= 0; level = -1)                                                                        \
        for (const struct sl_kernels *kernels; (kernels = KERNELS(level)); level++)

#endif
