/* attention_of_gpus.c - the GPUs' attention, run by the CPU: the same source with a GPU's constants; one thread does
 * the work of a team. The build compiles attention.c and attention_decode.c for this device. */
#include "tests/layers/kernels/attention/attention_of_gpus.h"

static void begin_region(void) {}

static void *room(void) {
    static _Alignas(64) char memory[SL_DEVICE_ROOM];
    return memory;
}

const struct sl_device_table sl_gpu_shaped_device = {
    .name = "shape of GPUs", .room = room, .begin_region = begin_region};

static const struct sl_kernels kernels = {.name = "as on GPUs", .attention = &sl_attention_kernels_device};

const struct sl_kernels *sl_kernels_of_gpus(int i) { return i ? NULL : &kernels; }
