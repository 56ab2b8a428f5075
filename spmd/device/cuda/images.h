/* images.h - the program's images of device code: finds a region's kernel on each device. Internal to the device
 * cuda. */
#ifndef SL_SPMD_DEVICE_CUDA_IMAGES_H
#define SL_SPMD_DEVICE_CUDA_IMAGES_H

#include "spmd/device/cuda/driver.h"
#include "spmd/device/cuda/libomptarget.h"

enum { SL_MOST_DEVICES = 64 };

/* A region's kernel on one device. */
struct sl_region_kernel {
    const char *name;
    CUfunction function;
    struct sl_omp_kernel_environment environment;
};

/* Whether every binary with regions has an image for a GPU of ARCHITECTURE, 90 for sm_90. */
bool sl_images_fit(unsigned architecture);

/* Loads on the queue's device all images of the program, and of libraries opened since, that are not loaded yet, and
 * looks up all their kernels, which loads these, too: loading them later could wait for running work. False, and a
 * failure in the queue, if a region has no code in them. */
bool sl_images_load(struct sl_cuda_queue *queue);

/* The kernel of REGION on DEVICE; NULL if it has not been loaded there. */
const struct sl_region_kernel *sl_images_find(const void *region, int device);

/* Bytes for sums across teams: the largest need of any kernel. */
size_t sl_images_reduction(int device);

#endif
