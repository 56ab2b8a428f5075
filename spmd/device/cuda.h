/* cuda.h - a thread's queue on an NVIDIA GPU, for what enqueues there itself: products and communication. */
#ifndef SL_SPMD_DEVICE_CUDA_H
#define SL_SPMD_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_cuda_queue {
    cudaStream_t stream; /* waits for no other; NULL: not open */
    int device;
    /* The stream has work that target regions, other threads and the host have to wait for (sl_device.settle): who
     * enqueues sets it. */
    bool busy;
    struct sl_error failure; /* the first that sl_device.settle has not told yet */
    /* What the library of products keeps for each queue, and what frees it when the queue is closed. */
    void *products;
    void (*free_products)(void *products);
};

/* The calling thread's, opened on device 0 where nobody has opened it. A thread that sl_run did not make leaves what
 * was opened so to the end of the process, unless it calls sl_device.close. */
struct sl_cuda_queue *sl_cuda_queue(void);

/* Keeps what failed: "device 1: LIBRARY's CALL failed: WHY". Of CALL, the name. */
void sl_cuda_fail(struct sl_cuda_queue *queue, const char *call, const char *why);

/* Whether CALL, of CUDA's runtime, has succeeded; if not, the queue keeps why. */
#define SL_CUDA(queue, call) sl_cuda_succeeded(queue, #call, call)
bool sl_cuda_succeeded(struct sl_cuda_queue *queue, const char *call, cudaError_t error);

SL_END_C
#endif
