/* images.h - what the program's images hold: which kernel is a region's, on each device. Between the files of the
 * device cuda. */
#ifndef SL_SPMD_DEVICE_IMAGES_H
#define SL_SPMD_DEVICE_IMAGES_H

#include "spmd/device/driver.h"
#include "spmd/device/libomptarget.h"

enum { SL_MOST_DEVICES = 64 };

/* A region's kernel on one device. */
struct sl_region_kernel {
    const char *name;
    CUfunction function;
    struct sl_omp_kernel_environment environment;
};

/* Whether all images that have regions have code for a GPU of ARCHITECTURE, 90 for sm_90. */
bool sl_images_fit(unsigned architecture);

/* Loads on the queue's device what is not there yet of all images that the program, and libraries it has opened since,
 * came with, and looks up all their kernels, which loads these, too: later that could wait for what runs on the device.
 * False, and a failure in the queue, if there is a region that none of them has code for. */
bool sl_images_load(struct sl_cuda_queue *queue);

/* The kernel of REGION on DEVICE; NULL if it has not been loaded there. */
const struct sl_region_kernel *sl_images_find(const void *region, int device);

/* Bytes that the sums across teams of all kernels need at most. */
size_t sl_images_reduction(int device);

#endif
