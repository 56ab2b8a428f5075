/* device_missing.c - builds without devices: all memory is the host's. */
#include "collectives/sums/copies.h"
#include "collectives/sums/reduce.h"

void sl_reduce_on_device(enum sl_reduction reduction, enum sl_dtype dtype, float scale,
                         const struct sl_matrices *matrices, int inputs, const void *const *input, int outputs,
                         void *const *output) {
    sl_reduce_matrices(reduction, dtype, scale, matrices, inputs, input, outputs, output);
}

void sl_collect_on_device(const struct sl_matrices *matrices, size_t size, int blocks, char *const *out,
                          const char *const *in) {
    for (int i = 0; i < blocks; i++) sl_copy_matrices(matrices, size, out[i], in[i]);
}
