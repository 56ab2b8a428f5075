/* regions.h - how target regions get to an NVIDIA GPU. The build links one of two: regions.c enqueues them in the
 * thread's queue; regions_libomptarget.c leaves them to LLVM's runtime, whose regions run, and are waited for, in
 * streams of its own. Between the files of the device cuda. */
#ifndef SL_SPMD_DEVICE_REGIONS_H
#define SL_SPMD_DEVICE_REGIONS_H

#include "spmd/device/cuda.h"

struct sl_cuda_regions {
    /* Whether regions can run on the GPUs that CUDA sees, DEVICES of them. */
    int (*check)(int devices, struct sl_error *error);
    /* For a thread's queue that has been opened: all that its regions will need is there, so that none of them loads or
     * allocates anything. close frees it; the queue is empty. */
    int (*open)(struct sl_cuda_queue *queue, struct sl_error *error);
    void (*close)(struct sl_cuda_queue *queue);
    /* sl_device.room of an open queue; NULL where that has failed. */
    void *(*room)(struct sl_cuda_queue *queue);
    /* Stands before every region (sl_device.begin_region). */
    void (*begin)(void);
};

extern const struct sl_cuda_regions sl_cuda_regions;

#endif
