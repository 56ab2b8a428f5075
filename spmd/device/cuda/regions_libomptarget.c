/* regions_libomptarget.c - target regions by LLVM's own runtime, which runs each region in its own stream and waits for
 * it. */
#include <omp.h>

#include "spmd/device/device.h"
#include "spmd/device/cuda/regions.h"

/* Without a fitting device, OpenMP's first target region would end the process. */
static int check(int devices, struct sl_error *error) {
    const int found = omp_get_num_devices();
    if (found == devices) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "CUDA sees %d GPUs, OpenMP %d: this build has code for %s (-DSL_CUDA_ARCHITECTURES), "
                        "OMP_TARGET_OFFLOAD must not be DISABLED, and code that CUDA 13's nvlink has linked needs an "
                        "OpenMP runtime newer than LLVM 19's, or ptxas and nvlink of CUDA 12.9",
                        devices, found, SL_CUDA_ARCHITECTURES);
}

/* CUDA and OpenMP number the devices alike. */
static int open(struct sl_cuda_queue *queue, struct sl_error *error) {
    (void)error;
    omp_set_default_device(queue->device);
    return SL_OK;
}

static void close(struct sl_cuda_queue *queue) {
    if (queue->regions) SL_CUDA(queue, cudaFree(queue->regions));
    queue->regions = NULL;
}

/* Allocated at first use: this runtime allocates memory during regions anyway. */
static void *room(struct sl_cuda_queue *queue) {
    if (!queue->regions) SL_CUDA(queue, cudaMalloc(&queue->regions, SL_DEVICE_ROOM));
    return queue->regions;
}
static void begin(void) { sl_device.settle(NULL); }

const struct sl_cuda_regions sl_cuda_regions = {
    .check = check, .open = open, .close = close, .room = room, .begin = begin};
