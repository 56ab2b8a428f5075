/* reduce_select.c - picks the sums of arrays for the CPU that the process runs on. All levels give the same bits. */
#include "collectives/reduce.h"
#include "spmd/base/cpu_level.h"

typedef void reduce(enum sl_reduction, enum sl_dtype, float scale, size_t count, int inputs, const void *const *input,
                    int outputs, void *const *output);
reduce sl_reduce_v2, sl_reduce_v3, sl_reduce_v4;

enum {
    FEW = 512, /* elements that are added before the level is known */
    PAIR = 2   /* arrays: wide vectors gain from caches what they lose where more arrays stream through memory */
};

void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output) {
    reduce *const levels[] = {sl_reduce_v2, sl_reduce_v3, sl_reduce_v4};
    levels[count < FEW || inputs > PAIR ? 0 : sl_cpu_level() - 2](reduction, dtype, scale, count, inputs, input,
                                                                  outputs, output);
}
