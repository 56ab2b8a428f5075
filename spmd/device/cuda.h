/* cuda.h - a thread's queue on an NVIDIA GPU, for the code that enqueues work on it: products and communication. */
#ifndef SL_SPMD_DEVICE_CUDA_H
#define SL_SPMD_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_cuda_queue {
    cudaStream_t stream; /* does not synchronize with other streams; NULL: not open */
    int device;
    /* The stream may hold unfinished work. Whoever enqueues sets it; sl_device.settle waits and clears it. Other
     * threads and the host must not touch the results before that. */
    bool busy;
    cudaStream_t aside;      /* for copies beside what the stream does; NULL: there have been none */
    cudaEvent_t meet;        /* where one of the two streams waits for the other */
    struct sl_error failure; /* the first failure that sl_device.settle has not reported yet */
    /* What the library of matrix products keeps for each queue, and the function that frees it with the queue. */
    void *products;
    void (*free_products)(void *products);
    void *regions; /* what spmd/device/regions.c keeps for the queue */
    bool watched;  /* the host looks into the device's memory: a target region is waited for */
};

/* The calling thread's queue. If none is open, it is opened on device 0; a thread that sl_run did not start then keeps
 * it until it calls sl_device.close, or the process ends. */
struct sl_cuda_queue *sl_cuda_queue(void);

/* Records the failure "device 1: LIBRARY's CALL failed: WHY". Of CALL only the function's name is kept. */
void sl_cuda_fail(struct sl_cuda_queue *queue, const char *call, const char *why);

/* Makes CALL, a call of CUDA's runtime. True if it succeeded; otherwise the queue records why not. */
#define SL_CUDA(queue, call) sl_cuda_succeeded(queue, #call, call)
bool sl_cuda_succeeded(struct sl_cuda_queue *queue, const char *call, cudaError_t error);

SL_END_C
#endif
