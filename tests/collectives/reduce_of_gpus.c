/* reduce_of_gpus.c - sums of several arrays as GPUs compute them, by the CPU: the same source with a GPU's constants.
 * The build gives reduce.c this device, and the test these functions in place of sl_reduce and sl_reduce_matrices. */
#include "collectives/sums/reduce.h"
#include "spmd/device/device.h"

static void begin_region(void) {}
static const void *constant(const void *from, size_t bytes) { return bytes ? from : NULL; }

extern const struct sl_device_table sl_gpu_shaped_device;
const struct sl_device_table sl_gpu_shaped_device = {
    .name = "shape of GPUs", .constant = constant, .begin_region = begin_region};

void sl_reduce_of_gpus(enum sl_reduction reduction, enum sl_dtype dtype, float scale,
                       const struct sl_matrices *matrices, int inputs, const void *const *input, int outputs,
                       void *const *output);

void sl_reduce_matrices(enum sl_reduction reduction, enum sl_dtype dtype, float scale,
                        const struct sl_matrices *matrices, int inputs, const void *const *input, int outputs,
                        void *const *output) {
    sl_reduce_of_gpus(reduction, dtype, scale, matrices, inputs, input, outputs, output);
}

void sl_reduce(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
               const void *const *input, int outputs, void *const *output) {
    const struct sl_matrices matrices = sl_one_array(count);
    sl_reduce_matrices(reduction, dtype, scale, &matrices, inputs, input, outputs, output);
}
