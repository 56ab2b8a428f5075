/* kernels_of_gpus.c - the GPUs' kernels, run by the CPU: the same source with a GPU's constants; one thread does the
 * work of a team. The build compiles the kernels for this device. */
#include "layers/kernels/kernels.h"
#include "spmd/device/device.h"

static void begin_region(void) {}

static void *room(void) {
    static _Alignas(64) char memory[SL_DEVICE_ROOM];
    return memory;
}

extern const struct sl_device_table sl_gpu_shaped_device;
const struct sl_device_table sl_gpu_shaped_device = {
    .name = "shape of GPUs", .room = room, .begin_region = begin_region};

const struct sl_kernels *sl_whole_kernels_of_gpus(int i);
const struct sl_kernels *sl_whole_kernels_of_gpus(int i) { return i ? NULL : &sl_kernels_device; }
