/* cuda.h - a thread's queue on an NVIDIA GPU, for code with work to enqueue: products and communication. */
#ifndef SL_SPMD_DEVICE_CUDA_CUDA_H
#define SL_SPMD_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_tape;
struct sl_constants;
struct sl_cuda_queue;

/* Enqueues work on queue->stream: always the same work for the same BYTES of ARGUMENT. The queue keeps a copy of
 * ARGUMENT and calls RUN(queue, argument) at once, or a little later as a part of a graph of the step (tape.h). Padding
 * between fields must be set, too. RUN returns false if the queue has failed, and so does sl_cuda_enqueue. */
typedef bool sl_cuda_run(struct sl_cuda_queue *queue, const void *argument);

/* Functions of an owner of further streams (branches) that take a part of its work off the queue's stream (engine
 * nccl). */
struct sl_cuda_branches {
    sl_cuda_run *begin; /* lets branches begin, behind queue->stream */
    sl_cuda_run *end;   /* makes queue->stream wait for them */
    sl_cuda_run *post;  /* begins a branch that may not end before a peer has received something of later calls */
    sl_cuda_run *rest;  /* ends the wait for such peers */
    /* Joins at once all branches that have begun and not ended, as at the end of a graph. LOST: the capture of them
     * gave no graph, and there is nothing to wait for. */
    void (*join)(void *owner, bool lost);
    /* Called if `owes` is set, when all calls have been issued and the host is about to wait. */
    void (*settle)(void *owner);
};

struct sl_cuda_queue {
    /* Does not synchronize with other streams; NULL: not open. Other files get it from sl_cuda_stream. */
    cudaStream_t stream;
    int device;
    /* The stream may hold unfinished work. Code that enqueues work sets it; sl_device.settle waits and clears it. Other
     * threads and the host must not touch the results before that. */
    bool busy;
    cudaStream_t aside;      /* stream of copies beside the work; NULL: no such copy yet */
    cudaEvent_t meet;        /* event with which one of the two streams waits for the other */
    struct sl_error failure; /* the first failure sl_device.settle has not reported yet */
    /* Data of the library of matrix products for this queue, and the function that frees it with the queue. */
    void *products;
    void (*free_products)(void *products);
    void *regions;                  /* data of spmd/device/cuda/regions.c for the queue */
    struct sl_constants *constants; /* constants of regions (constants.h) */
    struct sl_tape *tape;           /* the calls of the thread's step (tape.h); NULL: no graphs of steps */
    bool watched;                   /* the host reads device memory directly: every target region is waited for */
    unsigned steps;                 /* begun steps that may become graphs */
    unsigned stretch; /* changes after each graph and during a capture; events are valid within one stretch */
    const struct sl_cuda_branches *branches; /* NULL: no branches; they belong to OWNER */
    void *owner;
    bool owes;
    bool posted; /* a branch begun since the last rest may not end before a peer has had later calls */
};

/* The calling thread's queue. If none is open, it is opened on device 0; a thread that sl_run did not start then keeps
 * it until it calls sl_device.close, or the process ends. */
struct sl_cuda_queue *sl_cuda_queue(void);

/* The queue's stream, with all earlier calls issued to it: for uses that never are part of a graph, such as a wait, an
 * event, a copy to the host. */
cudaStream_t sl_cuda_stream(struct sl_cuda_queue *queue);

bool sl_cuda_enqueue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes);

/* The treatment of the next enqueued call. */
enum sl_cuda_course {
    SL_CUDA_AT_ONCE, /* it goes to the stream */
    SL_CUDA_NOTED,   /* it goes to the stream, and the tape notes or compares it */
    SL_CUDA_LATER,   /* it waits until its graph is launched */
};
enum sl_cuda_course sl_cuda_course(const struct sl_cuda_queue *queue);
/* For a waiting call (SL_CUDA_LATER): whether its graph is still possible. It is not if the stream was used within the
 * graph's calls. */
bool sl_cuda_is_whole(const struct sl_cuda_queue *queue);

/* Sets QUEUE's BRANCHES and their OWNER; NULL: none. Its graphs are discarded. */
void sl_cuda_branch(struct sl_cuda_queue *queue, const struct sl_cuda_branches *branches, void *owner);
/* Discards the graphs of QUEUE's steps, because something they use is about to be freed. */
void sl_cuda_forget(struct sl_cuda_queue *queue);
/* Whether queue->stream is being captured. */
bool sl_cuda_captures(const struct sl_cuda_queue *queue);

/* An sl_cuda_run that fills memory with zeros. */
struct sl_cuda_fill {
    void *memory;
    size_t bytes;
};
sl_cuda_run sl_cuda_fill;

/* Records the failure "device 1: LIBRARY's CALL failed: WHY". Of CALL only the function's name is used. */
void sl_cuda_fail(struct sl_cuda_queue *queue, const char *call, const char *why);

struct sl_refusal;
/* Records a refusal of BYTES by the queue's device, with ERROR. */
void sl_cuda_note_refusal(const struct sl_cuda_queue *queue, size_t bytes, cudaError_t error);
/* sl_device.refused: the largest request that was refused. */
bool sl_cuda_refused(struct sl_refusal *refusal);

/* Makes CALL, a call of CUDA's runtime. True if it succeeded; otherwise the queue records the reason. */
#define SL_CUDA(queue, call) sl_cuda_succeeded(queue, #call, call)
bool sl_cuda_succeeded(struct sl_cuda_queue *queue, const char *call, cudaError_t error);

SL_END_C
#endif
