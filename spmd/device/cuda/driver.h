/* driver.h - NVIDIA's driver: its functions, looked up at run time, and kernel launches. Internal to the device
 * cuda. */
#ifndef SL_SPMD_DEVICE_CUDA_DRIVER_H
#define SL_SPMD_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <stddef.h>

#include "spmd/device/cuda/cuda.h"

/* The driver's functions. */
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
    CUresult (*begin_capture)(CUstream stream, CUstreamCaptureMode mode);
    CUresult (*end_capture)(CUstream stream, CUgraph *graph);
    CUresult (*capture_info)(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number, CUgraph *graph,
                             const CUgraphNode **last, size_t *count);
    CUresult (*graph_make)(CUgraphExec *made, CUgraph graph, unsigned long long flags);
    CUresult (*graph_set_kernel)(CUgraphExec made, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel);
    CUresult (*graph_launch)(CUgraphExec made, CUstream stream);
    CUresult (*graph_free_made)(CUgraphExec made);
    CUresult (*graph_free)(CUgraph graph);
};

/* Returns the functions; NULL if the driver lacks one: the queue then has failed. */
const struct sl_cuda_driver *sl_cuda_driver(struct sl_cuda_queue *queue);

/* True if STATUS, of a call of the driver's FUNCTION for WHAT, is success; otherwise the queue records the failure. */
bool sl_cuda_drove(struct sl_cuda_queue *queue, const char *function, const char *what, CUresult status);

enum { SL_MOST_PARAMETERS = 64 };

/* A kernel's launch, its grid and blocks along x only. */
struct sl_kernel_launch {
    CUfunction function;
    const char *name;
    unsigned blocks, threads, shared, count; /* shared: bytes; count: of parameters */
    void *parameter[SL_MOST_PARAMETERS];
};

/* Bytes of LAUNCH up to its last parameter. */
static inline size_t sl_kernel_launch_bytes(const struct sl_kernel_launch *launch) {
    return offsetof(struct sl_kernel_launch, parameter) + launch->count * sizeof *launch->parameter;
}

/* Launches on the queue's stream, at once. False: the queue has failed. */
bool sl_cuda_launch(struct sl_cuda_queue *queue, const struct sl_kernel_launch *launch);

#endif
