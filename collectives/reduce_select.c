/* reduce_select.c - picks the sums of arrays for the CPU that the process runs on. All levels give the same bits. */
#include "collectives/reduce.h"
#include "spmd/base/cpu_level.h"

typedef void reduce(enum sl_reduction, enum sl_dtype, float scale, size_t count, int inputs, const void *const *input,
                    int outputs, void *const *output);
reduce sl_reduce_v2, sl_reduce_v3, sl_reduce_v4;

enum { FEW = 512 }; /* elements: fewer are added in less time than it takes to find the level */

/* Two arrays that stay where they are. Wide vectors add these faster; where more arrays stream through memory, they
 * have been measured to take longer than narrow ones. */
static bool is_pair_in_place(int inputs, const void *const *input, int outputs, void *const *output) {
    return inputs == 2 && outputs == 2 && input[0] == output[0] && input[1] == output[1];
}

void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output) {
    reduce *const levels[] = {sl_reduce_v2, sl_reduce_v3, sl_reduce_v4};
    const bool wide = count >= FEW && is_pair_in_place(inputs, input, outputs, output);
    levels[wide ? sl_cpu_level() - 2 : 0](reduction, dtype, scale, count, inputs, input, outputs, output);
}
