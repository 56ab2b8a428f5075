/* failures.c - calls of CUDA's that have failed, and requests for memory that a device has refused. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "spmd/device/cuda/cuda.h"
#include "spmd/device/device.h"

void sl_cuda_fail(struct sl_cuda_queue *queue, const char *call, const char *why) {
    if (queue->failure.status) return;
    sl_error_set(&queue->failure, SL_FAILED, "device %d: %.*s: %s", queue->device, (int)strcspn(call, "("), call, why);
}

/* ---- refused requests ---- */

static pthread_mutex_t refusal_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_refusal last_refusal;
static bool any_refusal;

void sl_cuda_note_refusal(const struct sl_cuda_queue *queue, size_t bytes, cudaError_t error) {
    struct sl_refusal refusal = {.device = queue->device, .bytes = bytes};
    cudaGetLastError();
    if (error != cudaErrorMemoryAllocation)
        snprintf(refusal.why, sizeof refusal.why, "cudaMalloc: %s", cudaGetErrorString(error));
    else if (cudaMemGetInfo(&refusal.room, &refusal.whole))
        refusal.whole = 0;
    pthread_mutex_lock(&refusal_lock);
    /* Keep the largest refused request: smaller ones after it tell the user less. */
    if (!any_refusal || *refusal.why || refusal.device != last_refusal.device || bytes >= last_refusal.bytes)
        last_refusal = refusal;
    any_refusal = true;
    pthread_mutex_unlock(&refusal_lock);
}

bool sl_cuda_succeeded(struct sl_cuda_queue *queue, const char *call, cudaError_t error) {
    if (!error) return true;
    /* Streams, events and kernels need device memory, too; cudaMallocHost needs the host's. */
    if (error == cudaErrorMemoryAllocation && strncmp(call, "cudaMallocHost", strlen("cudaMallocHost")) != 0)
        sl_cuda_note_refusal(queue, 0, error);
    cudaGetLastError(); /* clears CUDA's copy of the error */
    sl_cuda_fail(queue, call, cudaGetErrorString(error));
    return false;
}

bool sl_cuda_refused(struct sl_refusal *refusal) {
    pthread_mutex_lock(&refusal_lock);
    const bool any = any_refusal;
    *refusal = last_refusal;
    pthread_mutex_unlock(&refusal_lock);
    return any;
}
