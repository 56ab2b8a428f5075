/* cuda.h - a thread's queue on an NVIDIA GPU, for the code that enqueues work on it: products and communication. */
#ifndef SL_SPMD_DEVICE_CUDA_H
#define SL_SPMD_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_tape;
struct sl_constants;
struct sl_cuda_queue;

/* Enqueues by RUN(queue, argument), at once or, as a part of a graph of the step (tape.h), a little later. RUN puts
 * work on queue->stream, always the same for the same BYTES of ARGUMENT, of which a copy is kept: what lies between
 * fields must be set, too. It returns false where the queue has failed, and so does sl_cuda_enqueue. */
typedef bool sl_cuda_run(struct sl_cuda_queue *queue, const void *argument);

/* Whoever has streams beside the queue's, on which a part of what it enqueues runs (engine nccl). */
struct sl_cuda_branches {
    sl_cuda_run *begin; /* lets other streams begin, behind queue->stream, */
    sl_cuda_run *end;   /* and this one lets queue->stream wait for them */
    sl_cuda_run *post;  /* one begins, and may not end before a peer has had something of later calls, */
    sl_cuda_run *rest;  /* up to this one */
    /* The same for all that have begun and not ended, as at the end of a graph, and at once; LOST: what was captured of
     * them is no graph, and there is nothing to wait for. */
    void (*join)(void *owner, bool lost);
    /* All that was enqueued is on its way, and the host is about to wait. Called where `owes` is set. */
    void (*settle)(void *owner);
};

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
    unsigned steps;       /* that have begun and may become graphs */
    unsigned stretch; /* another number behind each graph, and while one is captured: events keep to their stretch */
    const struct sl_cuda_branches *branches; /* NULL: there are none; they are OWNER's */
    void *owner;
    bool owes;
    bool posted; /* what such a stream has begun since the last rest may not end before a peer has had later calls */
};

/* The calling thread's queue. If none is open, it is opened on device 0; a thread that sl_run did not start then keeps
 * it until it calls sl_device.close, or the process ends. */
struct sl_cuda_queue *sl_cuda_queue(void);

/* The queue's stream, for what is never a part of a graph: a wait, an event, a copy to the host. All that was asked of
 * the queue before is in it. */
cudaStream_t sl_cuda_stream(struct sl_cuda_queue *queue);

bool sl_cuda_enqueue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes);

/* What becomes of the call that is enqueued next. */
enum sl_cuda_course {
    SL_CUDA_AT_ONCE, /* it goes to the stream */
    SL_CUDA_NOTED,   /* and the tape notes it, or compares it */
    SL_CUDA_LATER,   /* or it waits until its graph is launched */
};
enum sl_cuda_course sl_cuda_course(const struct sl_cuda_queue *queue);
/* Of a call that would wait: whether its graph can still come to be. It cannot where the stream was used within it. */
bool sl_cuda_is_whole(const struct sl_cuda_queue *queue);

/* From now on QUEUE's other streams are OWNER's; NULL: there are none. Its graphs are given up. */
void sl_cuda_branch(struct sl_cuda_queue *queue, const struct sl_cuda_branches *branches, void *owner);
/* Gives up the graphs of QUEUE's steps: something that they use is about to go. */
void sl_cuda_forget(struct sl_cuda_queue *queue);
/* Whether queue->stream is being captured. */
bool sl_cuda_captures(const struct sl_cuda_queue *queue);

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
