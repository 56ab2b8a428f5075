/* attention_of_gpus.h - a table of kernels with GPUs' attention for the CPU, and the device of its regions. */
#ifndef SL_TESTS_LAYERS_KERNELS_ATTENTION_ATTENTION_OF_GPUS_H
#define SL_TESTS_LAYERS_KERNELS_ATTENTION_ATTENTION_OF_GPUS_H

#include "layers/kernels/kernels.h"
#include "spmd/device/device.h"

extern const struct sl_device_table sl_gpu_shaped_device;

/* Like sl_kernels_available, but only the name and attention are set. */
const struct sl_kernels *sl_kernels_of_gpus(int i);

#endif
