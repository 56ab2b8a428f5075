/* cuda.h - a thread's queue on an NVIDIA GPU, for the code that enqueues work on it: products and communication. */
#ifndef SL_SPMD_DEVICE_CUDA_H
#define SL_SPMD_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_tape;
struct sl_constants;

struct sl_cuda_queue {
    /* Does not synchronize with other streams; NULL: not open. Others get it by sl_cuda_stream. */
    cudaStream_t stream;
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
    void *regions;                  /* what spmd/device/regions.c keeps for the queue */
    struct sl_constants *constants; /* what regions read beside arrays (constants.h) */
    struct sl_tape *tape; /* what the thread asks for in a step (tape.h); NULL: there are no graphs of steps */
    bool watched;         /* the host looks into the device's memory: a target region is waited for */
};

/* The calling thread's queue. If none is open, it is opened on device 0; a thread that sl_run did not start then keeps
 * it until it calls sl_device.close, or the process ends. */
struct sl_cuda_queue *sl_cuda_queue(void);

/* The queue's stream, for what is never a part of a graph: a wait, an event, a copy to the host. All that was asked of
 * the queue before is in it. */
cudaStream_t sl_cuda_stream(struct sl_cuda_queue *queue);

/* Enqueues by RUN(queue, argument), at once or, as a part of a graph of the step (tape.h), a little later. RUN puts
 * work on queue->stream, always the same for the same BYTES of ARGUMENT, of which a copy is kept: what lies between
 * fields must be set, too. It returns false where the queue has failed, and so does this. */
typedef bool sl_cuda_run(struct sl_cuda_queue *queue, const void *argument);
bool sl_cuda_enqueue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes);

/* Such a RUN: fills memory with zeros. */
struct sl_cuda_fill {
    void *memory;
    size_t bytes;
};
sl_cuda_run sl_cuda_fill;

/* Records the failure "device 1: LIBRARY's CALL failed: WHY". Of CALL only the function's name is kept. */
void sl_cuda_fail(struct sl_cuda_queue *queue, const char *call, const char *why);

/* Makes CALL, a call of CUDA's runtime. True if it succeeded; otherwise the queue records why not. */
#define SL_CUDA(queue, call) sl_cuda_succeeded(queue, #call, call)
bool sl_cuda_succeeded(struct sl_cuda_queue *queue, const char *call, cudaError_t error);

SL_END_C
#endif
