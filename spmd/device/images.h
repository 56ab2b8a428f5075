/* images.h - what the program's images hold: which kernel is a region's, on each device. Between the files of the
 * device cuda. */
#ifndef SL_SPMD_DEVICE_IMAGES_H
#define SL_SPMD_DEVICE_IMAGES_H

#include <cuda.h>

#include "spmd/device/cuda.h"
#include "spmd/device/libomptarget.h"

enum { SL_MOST_DEVICES = 64 };

/* A region's kernel on one device. */
struct sl_region_kernel {
    const char *name;
    CUfunction function;
    struct sl_omp_kernel_environment environment;
};

/* The driver's functions, by the names it has for them. */
struct sl_cuda_driver {
    CUresult (*module_load)(CUmodule *module, const void *image);
    CUresult (*module_unload)(CUmodule module);
    CUresult (*module_function)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*module_global)(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name);
    CUresult (*allocate)(CUdeviceptr *memory, size_t bytes);
    CUresult (*free)(CUdeviceptr memory);
    CUresult (*launch)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                       void **extra);
    CUresult (*error_text)(CUresult error, const char **text);
};

/* The functions; NULL, and a failure in the queue, where the driver does not have them. */
const struct sl_cuda_driver *sl_cuda_driver(struct sl_cuda_queue *queue);

/* True if the call of FUNCTION of the driver, made for WHAT, has succeeded; otherwise the queue records why not. */
bool sl_cuda_drove(struct sl_cuda_queue *queue, const char *function, const char *what, CUresult status);

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
