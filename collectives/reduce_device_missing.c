/* reduce_device_missing.c - without devices all memory is the host's. */
#include "collectives/reduce.h"

void sl_reduce_on_device(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
                         const void *const *input, int outputs, void *const *output) {
    sl_reduce(reduction, dtype, scale, count, inputs, input, outputs, output);
}
