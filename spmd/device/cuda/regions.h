/* regions.h - target regions on NVIDIA GPUs. The build links one of two files: regions.c enqueues regions in the
 * thread's queue; regions_libomptarget.c uses LLVM's runtime, which runs regions in its own streams and waits for each.
 * Internal to the device cuda. */
#ifndef SL_SPMD_DEVICE_CUDA_REGIONS_H
#define SL_SPMD_DEVICE_CUDA_REGIONS_H

#include "spmd/device/cuda/cuda.h"

struct sl_cuda_regions {
    /* Whether regions can run on the DEVICES GPUs that CUDA sees. */
    int (*check)(int devices, struct sl_error *error);
    /* For a thread's queue that has been opened: prepares everything for its regions: they load and allocate nothing.
     * close frees it; the queue is empty then. */
    int (*open)(struct sl_cuda_queue *queue, struct sl_error *error);
    void (*close)(struct sl_cuda_queue *queue);
    /* Implements sl_device.room for an open queue; NULL if opening has failed. */
    void *(*room)(struct sl_cuda_queue *queue);
    /* Called before every region (sl_device.begin_region). */
    void (*begin)(void);
};

extern const struct sl_cuda_regions sl_cuda_regions;

#endif
