/* cuda.c - NVIDIA's GPUs: one stream per thread, for products, communication, copies and target regions (regions.h).
 *
 * CUDA and OpenMP number the devices alike, and both use a device's primary context, so each can use the other's
 * allocations. Both have a current device per thread, and so does this file: the thread's queue. */
#include "spmd/device/cuda/cuda.h"

#include "spmd/device/cuda/constants.h"
#include "spmd/device/device.h"
#include "spmd/device/cuda/regions.h"
#include "spmd/device/cuda/tape.h"

#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct sl_cuda_queue this_queue;

static int count(void) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices)) cudaGetLastError();
    return devices;
}

/* ---- before a device's context is made ---- */

static pthread_mutex_t waits_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned how_to_wait = cudaDeviceScheduleAuto; /* CUDA's default: polls while there are fewer contexts
                                                         than cores */
static uint64_t begun;                                /* a bit per device */

static void rests(bool asleep) {
    pthread_mutex_lock(&waits_lock);
    how_to_wait = asleep ? cudaDeviceScheduleBlockingSync : cudaDeviceScheduleSpin;
    pthread_mutex_unlock(&waits_lock);
}

/* A polling thread sees the end of work after microseconds, a sleeping one tens of microseconds later. But a step waits
 * only a few times, and a polling thread keeps a core from another coordinate's thread, which has to enqueue. The
 * setting is a wish: CUDA's answer is ignored. */
static void begin(int number) {
    pthread_mutex_lock(&waits_lock);
    const uint64_t bit = number < 64 ? (uint64_t)1 << number : 0;
    if (how_to_wait != cudaDeviceScheduleAuto && bit && !(begun & bit)) {
        if (cudaInitDevice(number, how_to_wait, cudaInitDeviceFlagsAreValid)) cudaGetLastError();
        begun |= bit;
    }
    pthread_mutex_unlock(&waits_lock);
}

static int check(struct sl_error *error) {
    int devices = 0;
    /* Loads kernels eagerly. Loaded at its first launch, a kernel would wait for the device, and so perhaps for NCCL,
     * which waits for peers. CUDA reads the variable at its first call. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    /* The maximum, instead of 8. Further streams share a hardware queue, so a product could wait behind a call of NCCL;
     * this may wait for a peer, which may need the product's result. With engine nccl a coordinate has some 15
     * streams. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (!status && devices) return sl_cuda_regions.check(devices, error);
    cudaGetLastError();
    return sl_error_set(error, SL_BAD_INPUT,
                        "no NVIDIA GPU to compute on (%s): use a build of the preset host or offload",
                        cudaGetErrorString(status ? status : cudaErrorNoDevice));
}

/* Lets this device access other devices' memory directly. If it cannot, copies still work, and engine local refuses
 * such devices (distance). */
static void enable_peers(struct sl_cuda_queue *queue) {
    const int devices = count();
    for (int peer = 0; peer < devices; peer++) {
        int can = 0;
        if (peer == queue->device || cudaDeviceCanAccessPeer(&can, queue->device, peer) || !can) continue;
        const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
        if (status != cudaErrorPeerAccessAlreadyEnabled) sl_cuda_succeeded(queue, "cudaDeviceEnablePeerAccess", status);
    }
    cudaGetLastError();
}

/* Reports a known failure. */
static int report(struct sl_cuda_queue *queue, struct sl_error *error) {
    const int status = queue->failure.status;
    if (!error) return status; /* the failure stays for the next call with ERROR */
    if (status) sl_error_set(error, status, "%s", queue->failure.message);
    queue->failure = (struct sl_error){0};
    return status;
}

static int settle(struct sl_error *error) {
    struct sl_cuda_queue *queue = &this_queue;
    if (queue->busy) SL_CUDA(queue, cudaStreamSynchronize(sl_cuda_stream(queue)));
    queue->busy = false;
    return report(queue, error);
}

static void close_aside(struct sl_cuda_queue *queue) {
    if (queue->aside) SL_CUDA(queue, cudaStreamSynchronize(queue->aside));
    if (queue->aside) SL_CUDA(queue, cudaStreamDestroy(queue->aside));
    if (queue->meet) SL_CUDA(queue, cudaEventDestroy(queue->meet));
    queue->aside = NULL;
    queue->meet = NULL;
}

static void close(void) {
    struct sl_cuda_queue *queue = &this_queue;
    if (!queue->stream) return;
    settle(NULL);
    sl_tape_close(queue);
    close_aside(queue);
    sl_cuda_regions.close(queue);
    sl_constants_close(queue);
    if (queue->products) queue->free_products(queue->products);
    SL_CUDA(queue, cudaStreamDestroy(queue->stream));
    *queue = (struct sl_cuda_queue){0};
}

/* SHARDLOOP_MEMORY=managed, for debuggers and tests that read device memory. */
static bool memory_is_watched(void) {
    const char *kind = getenv("SHARDLOOP_MEMORY");
    return kind && !strcmp(kind, "managed");
}

static int open(int number, void **opened, struct sl_error *error) {
    struct sl_cuda_queue *queue = &this_queue;
    if (queue->stream && queue->device != number) close();
    *opened = queue;
    if (queue->stream) return SL_OK;
    queue->device = number;
    begin(number);
    if (!SL_CUDA(queue, cudaSetDevice(number)) ||
        !SL_CUDA(queue, cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking)))
        return settle(error);
    enable_peers(queue);
    queue->watched = memory_is_watched();
    const int status = sl_cuda_regions.open(queue, error);
    if (status || sl_constants_open(queue)) return status;
    sl_cuda_regions.close(queue); /* regions must not read missing constants */
    return settle(error);
}

struct sl_cuda_queue *sl_cuda_queue(void) {
    void *queue = &this_queue;
    if (!this_queue.stream) open(0, &queue, NULL);
    return queue;
}

static cudaError_t allocate(void **memory, size_t bytes) {
    return memory_is_watched() ? cudaMallocManaged(memory, bytes, cudaMemAttachGlobal) : cudaMalloc(memory, bytes);
}

/* The memory is zero for every thread's queue, not only for this one. */
static void *take(size_t bytes) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    void *memory = NULL;
    const cudaError_t status = allocate(&memory, bytes ? bytes : 1);
    if (status) sl_cuda_note_refusal(queue, bytes, status);
    if (status == cudaErrorMemoryAllocation) return NULL; /* the caller may try with less */
    if (!sl_cuda_succeeded(queue, "cudaMalloc", status)) return NULL;
    queue->busy = true;
    if (!SL_CUDA(queue, cudaMemsetAsync(memory, 0, bytes, sl_cuda_stream(queue))) || settle(NULL)) {
        cudaFree(memory);
        return NULL;
    }
    return memory;
}

static void give(void *memory) {
    if (!memory) return;
    settle(NULL);
    SL_CUDA(&this_queue, cudaFree(memory));
}

static bool memory_of(size_t *room, size_t *whole) { return SL_CUDA(&this_queue, cudaMemGetInfo(room, whole)); }

static void *take_host(size_t bytes) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    void *memory = NULL;
    if (!SL_CUDA(queue, cudaMallocHost(&memory, bytes ? bytes : 1))) return NULL;
    return memset(memory, 0, bytes);
}

static void give_host(void *memory) {
    if (!memory) return;
    settle(NULL);
    SL_CUDA(&this_queue, cudaFreeHost(memory));
}

static enum cudaMemoryType type_of(const void *memory) {
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory)) {
        cudaGetLastError();
        return cudaMemoryTypeUnregistered;
    }
    return attributes.type;
}

static bool reaches(const void *memory) {
    const enum cudaMemoryType type = type_of(memory);
    return type == cudaMemoryTypeDevice || type == cudaMemoryTypeManaged;
}

static bool is_cudas(enum cudaMemoryType type) { return type != cudaMemoryTypeUnregistered; }

struct copying {
    void *to;
    const void *from;
    size_t bytes;
};

static bool run_copy(struct sl_cuda_queue *queue, const void *argument) {
    const struct copying *c = argument;
    return SL_CUDA(queue, cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDefault, queue->stream));
}

/* The host goes on if it cannot see the copy: if the target is on a device and the source is known to CUDA. For host
 * memory that CUDA does not know, CUDA itself waits for the copy, and so for all work before it. */
static void copy(void *to, const void *from, size_t bytes) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    if (!bytes) return;
    const enum cudaMemoryType target = type_of(to), source = type_of(from);
    if (is_cudas(target) && target != cudaMemoryTypeHost && is_cudas(source)) {
        const struct copying copying = {to, from, bytes};
        sl_cuda_enqueue(queue, run_copy, &copying, sizeof copying);
        return;
    }
    queue->busy = true;
    const bool done = SL_CUDA(queue, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, sl_cuda_stream(queue)));
    if (done && !is_cudas(target))
        queue->busy = false;
    else
        settle(NULL);
}

struct copying_rows {
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, bytes, rows;
};

static bool run_copy_rows(struct sl_cuda_queue *queue, const void *argument) {
    const struct copying_rows *c = argument;
    return SL_CUDA(queue, cudaMemcpy2DAsync(c->to, c->to_pitch, c->from, c->from_pitch, c->bytes, c->rows,
                                            cudaMemcpyDefault, queue->stream));
}

static void copy_rows(size_t rows, size_t bytes, void *to, size_t to_pitch, const void *from, size_t from_pitch) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    const enum cudaMemoryType target = type_of(to);
    if (!is_cudas(target) || !is_cudas(type_of(from))) {
        for (size_t row = 0; row < rows; row++)
            copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, bytes);
        return;
    }
    const struct copying_rows copying = {to, from, to_pitch, from_pitch, bytes, rows};
    sl_cuda_enqueue(queue, run_copy_rows, &copying, sizeof copying);
    if (target == cudaMemoryTypeHost) settle(NULL);
}

bool sl_cuda_fill(struct sl_cuda_queue *queue, const void *argument) {
    const struct sl_cuda_fill *fill = argument;
    return SL_CUDA(queue, cudaMemsetAsync(fill->memory, 0, fill->bytes, queue->stream));
}

static bool open_aside(struct sl_cuda_queue *queue) {
    if (queue->aside) return true;
    if (SL_CUDA(queue, cudaEventCreateWithFlags(&queue->meet, cudaEventDisableTiming)) &&
        SL_CUDA(queue, cudaStreamCreateWithFlags(&queue->aside, cudaStreamNonBlocking)))
        return true;
    close_aside(queue);
    return false;
}

/* Makes later work in FOLLOWER begin after all work in LEADER. */
static void follow(struct sl_cuda_queue *queue, cudaStream_t follower, cudaStream_t leader) {
    if (SL_CUDA(queue, cudaEventRecord(queue->meet, leader)))
        SL_CUDA(queue, cudaStreamWaitEvent(follower, queue->meet, 0));
}

static void copy_aside(void *to, const void *from, size_t bytes) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    if (!bytes || !open_aside(queue)) return;
    if (queue->busy) follow(queue, queue->aside, sl_cuda_stream(queue));
    SL_CUDA(queue, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue->aside));
}

static void await_aside(void) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    if (!queue->aside) return;
    follow(queue, sl_cuda_stream(queue), queue->aside);
    queue->busy = true;
}

/* If the host reads device memory directly, the marked work is waited for. */
static int mark(void **mark, struct sl_error *error) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    if (queue->watched) settle(NULL);
    if (!*mark) {
        cudaEvent_t event;
        if (SL_CUDA(queue, cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) *mark = event;
    }
    if (*mark) SL_CUDA(queue, cudaEventRecord(*mark, sl_cuda_stream(queue)));
    return report(queue, error);
}

static void follow_mark(void *mark) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    if (!mark || !SL_CUDA(queue, cudaStreamWaitEvent(sl_cuda_stream(queue), mark, 0))) return;
    queue->busy = true;
    if (queue->watched) settle(NULL);
}

static void await(void *mark) {
    if (mark) SL_CUDA(&this_queue, cudaEventSynchronize(mark));
}

static void free_mark(void *mark) {
    if (mark) SL_CUDA(&this_queue, cudaEventDestroy(mark));
}

static void zero(void *memory, size_t bytes) {
    const struct sl_cuda_fill fill = {memory, bytes};
    struct sl_cuda_queue *queue = sl_cuda_queue();
    if (!bytes) return;
    if (type_of(memory) == cudaMemoryTypeUnregistered) { /* host memory that CUDA does not know */
        settle(NULL);
        memset(memory, 0, bytes);
        return;
    }
    sl_cuda_enqueue(queue, sl_cuda_fill, &fill, sizeof fill);
}

static void begin_step(const void *owner, enum sl_graphs graphs) { sl_tape_begin(sl_cuda_queue(), owner, graphs); }
static void end_step(void) { sl_tape_end(&this_queue); }
static void report_graphs(struct sl_graph_report *report) { sl_tape_report(&this_queue, report); }

static bool offloads(void) {
    int initial = 1;
    sl_cuda_regions.begin();
#pragma omp target map(from : initial)
    initial = omp_is_initial_device();
    return !initial;
}

static const void *constant(const void *from, size_t bytes) { return sl_constants_find(sl_cuda_queue(), from, bytes); }

static void *room(void) { return sl_cuda_regions.room(sl_cuda_queue()); }
static void begin_region(void) { sl_cuda_regions.begin(); }

static int distance(int one, int other) {
    int rank = 0, reachable = 0;
    if (one == other) return 0;
    if (cudaDeviceGetP2PAttribute(&reachable, cudaDevP2PAttrAccessSupported, one, other) || !reachable ||
        cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, one, other)) {
        cudaGetLastError();
        return INT_MAX;
    }
    return 1 + rank; /* CUDA's best rank is 0 */
}

/* The text is valid until the thread's next call. */
static const char *bus(int number) {
    static _Thread_local char address[32];
    if (!cudaDeviceGetPCIBusId(address, sizeof address, number)) return address;
    cudaGetLastError();
    return NULL;
}

const struct sl_device_table sl_device = {
    .name = "cuda",
    .shares_memory = false,
    .check = check,
    .count = count,
    .rests = rests,
    .open = open,
    .close = close,
    .take = take,
    .give = give,
    .take_host = take_host,
    .give_host = give_host,
    .memory = memory_of,
    .refused = sl_cuda_refused,
    .reaches = reaches,
    .copy = copy,
    .copy_rows = copy_rows,
    .copy_aside = copy_aside,
    .await_aside = await_aside,
    .zero = zero,
    .settle = settle,
    .mark = mark,
    .follow = follow_mark,
    .await = await,
    .free_mark = free_mark,
    .begin_step = begin_step,
    .end_step = end_step,
    .report_graphs = report_graphs,
    .constant = constant,
    .room = room,
    .begin_region = begin_region,
    .offloads = offloads,
    .distance = distance,
    .bus = bus,
};
