/* cuda.c - the fake CUDA's devices, memory and copies. */
#include "fake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_DEVICES = 16, ALIGNMENT = 256, GARBAGE = 0xff, PAGE = 4096 };
static const size_t MOST_KEPT = (size_t)4 << 30;

const struct fake_executor *fake_executor;

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

int fake_number(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
}

int fake_devices(void) {
    const int devices = fake_number("FAKE_CUDA_DEVICES", 2);
    return devices < 0 ? 0 : devices > MOST_DEVICES ? MOST_DEVICES : devices;
}

int fake_openmp_devices(void) { return fake_number("FAKE_CUDA_OPENMP", fake_devices()); }
int fake_device(void) { return current_device; }

bool fake_skips(size_t bytes) { return bytes > 1 << 16 && fake_number("FAKE_CUDA_IDLE", 0); }

cudaError_t fake_error(cudaError_t error) {
    if (error) last_error = error;
    return error;
}

/* Counting begins anew whenever the variable changes. */
bool fake_fails(const char *function) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char seen[80];
    static int calls;
    const char *told = getenv("FAKE_CUDA_FAIL");
    if (!told) told = "";
    pthread_mutex_lock(&lock);
    if (strcmp(seen, told)) {
        snprintf(seen, sizeof seen, "%s", told);
        calls = 0;
    }
    const char *at = strchr(seen, '@');
    const size_t length = at ? (size_t)(at - seen) : strlen(seen);
    const bool meant = *seen && strlen(function) == length && !strncmp(seen, function, length);
    const bool fails = meant && ++calls == (at ? atoi(at + 1) : 1);
    pthread_mutex_unlock(&lock);
    return fails;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
enum { ERRORS = sizeof errors / sizeof *errors };

static int find_error(cudaError_t error) {
    int i = 0;
    while (i < ERRORS - 1 && errors[i].error != error) i++;
    return i;
}

const char *cudaGetErrorName(cudaError_t error) { return errors[find_error(error)].name; }
const char *cudaGetErrorString(cudaError_t error) { return errors[find_error(error)].text; }
cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

static bool is_device(int device) { return device >= 0 && device < fake_devices(); }

cudaError_t cudaGetDeviceCount(int *count) {
    FAKE_CALL();
    *count = fake_devices();
    return *count ? cudaSuccess : fake_error(cudaErrorNoDevice);
}

static atomic_bool has_context[MOST_DEVICES];

/* Fails if the device has a context already: flags come too late then. */
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    if (!is_device(device)) return fake_error(cudaErrorInvalidDevice);
    if (flags != cudaInitDeviceFlagsAreValid || atomic_exchange(&has_context[device], true))
        return fake_error(cudaErrorInvalidValue);
    fake_record("call %s %u", __func__, device_flags);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    FAKE_CALL();
    if (!is_device(device)) return fake_error(cudaErrorInvalidDevice);
    atomic_store(&has_context[device], true);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    FAKE_CALL();
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    FAKE_CALL();
    fake_finish_device(current_device);
    return cudaSuccess;
}

/* Returns the attributes that programs ask for. Each device is an sm_90 unless FAKE_CUDA_ARCHITECTURE names another. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    FAKE_CALL();
    if (!is_device(device)) return fake_error(cudaErrorInvalidDevice);
    const int architecture = fake_number("FAKE_CUDA_ARCHITECTURE", 90);
    if (attribute == cudaDevAttrComputeCapabilityMajor)
        *value = architecture / 10;
    else if (attribute == cudaDevAttrComputeCapabilityMinor)
        *value = architecture % 10;
    else
        return fake_error(cudaErrorInvalidValue);
    return cudaSuccess;
}

/* Returns whether two devices can access each other. FAKE_CUDA_APART lists devices that cannot, a digit a device. */
static bool meet(int one, int other) {
    const char *apart = getenv("FAKE_CUDA_APART");
    return one != other && (!apart || (!strchr(apart, '0' + one) && !strchr(apart, '0' + other)));
}

/* Neighbours 0 and 1, 2 and 3 and so on are close, all others farther. */
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int from, int to) {
    FAKE_CALL();
    if (!is_device(from) || !is_device(to) || from == to) return fake_error(cudaErrorInvalidDevice);
    *value = attribute == cudaDevP2PAttrPerformanceRank ? from / 2 != to / 2 : meet(from, to);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int length, int device) {
    FAKE_CALL();
    if (!is_device(device)) return fake_error(cudaErrorInvalidDevice);
    snprintf(bus, (size_t)length, "0000:%02X:00.0", device + 1);
    return cudaSuccess;
}

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static bool peer_enabled[MOST_DEVICES][MOST_DEVICES];

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    FAKE_CALL();
    if (!is_device(device) || !is_device(peer)) return fake_error(cudaErrorInvalidDevice);
    *can = meet(device, peer);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    FAKE_CALL();
    if (!is_device(peer) || peer == current_device || flags) return fake_error(cudaErrorInvalidDevice);
    if (!meet(current_device, peer)) return fake_error(cudaErrorPeerAccessUnsupported);
    fake_record("peer %d %d", current_device, peer);
    pthread_mutex_lock(&memory_lock);
    const bool before = peer_enabled[current_device][peer];
    peer_enabled[current_device][peer] = true;
    pthread_mutex_unlock(&memory_lock);
    return before ? fake_error(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}

static size_t used[MOST_DEVICES]; /* the lock is held */

static size_t memory_of_device(void) { return (size_t)fake_number("FAKE_CUDA_MEMORY_MB", 1 << 16) << 20; }

static size_t free_of_device(int device) {
    const char *told = getenv("FAKE_CUDA_OTHERS_MB"), *at = told ? strchr(told, '@') : NULL;
    const bool late = at && used[device] >= (size_t)atoi(at + 1) << 20;
    const size_t whole = memory_of_device(), taken = used[device] + (late ? (size_t)atoi(told) << 20 : 0);
    return taken < whole ? whole - taken : 0;
}

struct block {
    struct block *next;
    char *base;
    size_t bytes;
    enum cudaMemoryType type;
    int device, number; /* 0: the driver's own */
};
static struct block *blocks;
static int numbers;

/* Returns the block that contains MEMORY. The caller holds the lock. */
static struct block **find(const void *memory) {
    const uintptr_t at = (uintptr_t)memory;
    struct block **block = &blocks;
    while (*block && (at < (uintptr_t)(*block)->base || at >= (uintptr_t)(*block)->base + (*block)->bytes))
        block = &(*block)->next;
    return block;
}

static struct block block_of(const void *memory) {
    pthread_mutex_lock(&memory_lock);
    const struct block *found = *find(memory), block = found ? *found : (struct block){0};
    pthread_mutex_unlock(&memory_lock);
    return block;
}

void fake_name(char *text, size_t size, const void *memory) {
    const struct block block = block_of(memory);
    const size_t offset = (uintptr_t)memory - (uintptr_t)block.base;
    if (!block.base)
        snprintf(text, size, "%#zx", (size_t)memory);
    else if (block.number)
        snprintf(text, size, "%d+%zu", block.number, offset);
    else
        snprintf(text, size, "own"); /* offsets are known to the driver's user only */
}

static const char *kind_of(const struct block *block) {
    return !block->base ? "host" : block->type == cudaMemoryTypeHost ? "pinned" : "device";
}

/* Allocates memory with garbage, so no code relies on zeros. With FAKE_CUDA_IDLE memory is zeros, and the pages of
 * large blocks stay untouched. */
static void *memory_of(size_t bytes) {
    const size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, whole);
    if (!memory) return NULL;
    if (!fake_number("FAKE_CUDA_IDLE", 0)) return memset(memory, GARBAGE, bytes);
    if (!fake_skips(bytes)) return memset(memory, 0, bytes);
    return memory; /* fresh pages of the system: zeros */
}

static cudaError_t take(void **memory, size_t bytes, enum cudaMemoryType type, bool numbered) {
    FAKE_UNCAPTURED();
    *memory = NULL;
    if (!bytes) return cudaSuccess;
    if (bytes > PTRDIFF_MAX - ALIGNMENT) return fake_error(cudaErrorMemoryAllocation);
    struct block *block = malloc(sizeof *block);
    void *base = memory_of(bytes);
    if (!block || !base) {
        free(block);
        free(base);
        return fake_error(cudaErrorMemoryAllocation);
    }
    *block = (struct block){NULL, base, bytes, type, current_device, 0};
    pthread_mutex_lock(&memory_lock);
    if (type != cudaMemoryTypeHost && bytes > free_of_device(current_device)) {
        pthread_mutex_unlock(&memory_lock);
        free(block);
        free(base);
        return fake_error(cudaErrorMemoryAllocation);
    }
    if (type != cudaMemoryTypeHost) used[current_device] += bytes;
    block->next = blocks;
    if (numbered) block->number = ++numbers;
    blocks = block;
    pthread_mutex_unlock(&memory_lock);
    if (fake_executor) fake_executor->taken(base, bytes, type);
    fake_record("take %s %d %zu", kind_of(block), block->number, bytes);
    *memory = base;
    return cudaSuccess;
}

/* Keeps released blocks, the oldest first, so an executor sees accesses to released memory: addresses are used
 * again only after as many bytes as are kept. The pages are released at once. The caller holds the lock. */
static void keep(struct block *block) {
    static struct block *kept, **end = &kept;
    static size_t bytes;
    const uintptr_t from = ((uintptr_t)block->base + PAGE - 1) / PAGE * PAGE;
    const uintptr_t to = ((uintptr_t)block->base + block->bytes) / PAGE * PAGE;
    if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
    *end = block;
    end = &block->next;
    block->next = NULL;
    for (bytes += block->bytes; kept && bytes > (fake_executor ? MOST_KEPT : 0);) {
        struct block *oldest = kept;
        if (!(kept = oldest->next)) end = &kept;
        bytes -= oldest->bytes;
        free(oldest->base);
        free(oldest);
    }
}

/* Waits for the device first, as CUDA does. */
static cudaError_t give(void *memory, bool host) {
    FAKE_UNCAPTURED();
    if (!memory) return cudaSuccess;
    const struct block held = block_of(memory);
    if (held.base != memory || (held.type == cudaMemoryTypeHost) != host) return fake_error(cudaErrorInvalidValue);
    fake_finish_device(held.device);
    pthread_mutex_lock(&memory_lock);
    struct block **at = find(memory), *block = *at;
    *at = block->next;
    if (block->type != cudaMemoryTypeHost) used[block->device] -= block->bytes;
    if (fake_executor) fake_executor->freed(memory);
    keep(block);
    pthread_mutex_unlock(&memory_lock);
    return cudaSuccess;
}

cudaError_t fake_take(void **memory, size_t bytes) { return take(memory, bytes, cudaMemoryTypeDevice, false); }

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    FAKE_CALL();
    return take(memory, bytes, cudaMemoryTypeDevice, true);
}

cudaError_t cudaMallocManaged(void **memory, size_t bytes, unsigned flags) {
    FAKE_CALL();
    return flags == cudaMemAttachGlobal ? take(memory, bytes, cudaMemoryTypeManaged, true)
                                        : fake_error(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    FAKE_CALL();
    return take(memory, bytes, cudaMemoryTypeHost, true);
}

cudaError_t cudaFree(void *memory) {
    FAKE_CALL();
    return give(memory, false);
}

cudaError_t cudaFreeHost(void *memory) {
    FAKE_CALL();
    return give(memory, true);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
    FAKE_CALL();
    pthread_mutex_lock(&memory_lock);
    *total = memory_of_device();
    *unused = free_of_device(current_device);
    pthread_mutex_unlock(&memory_lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory) {
    FAKE_CALL();
    const struct block block = block_of(memory);
    *attributes = (struct cudaPointerAttributes){.type = block.type, .device = block.base ? block.device : -1};
    if (block.base) attributes->devicePointer = (void *)(uintptr_t)memory;
    if (block.type == cudaMemoryTypeHost || block.type == cudaMemoryTypeManaged)
        attributes->hostPointer = (void *)(uintptr_t)memory;
    return cudaSuccess;
}

/* No copy goes beyond its block. */
static bool fits(const struct block *block, const void *memory, size_t bytes) {
    return !block->base || (uintptr_t)memory + bytes <= (uintptr_t)block->base + block->bytes;
}

static void record_copy(cudaStream_t stream, const struct block *target, const void *to, const struct block *source,
                        const void *from, size_t bytes) {
    char where[64] = "host", whence[64] = "host"; /* the host's own lies elsewhere in each run */
    if (!fake_records()) return;
    if (target->base) fake_name(where, sizeof where, to);
    if (source->base) fake_name(whence, sizeof whence, from);
    fake_work(stream, "copy %s>%s %zu %s %s", kind_of(source), kind_of(target), bytes, where, whence);
}

struct copy {
    void *to;
    const void *from; /* NULL: the bytes behind this struct */
    size_t bytes;
    bool to_host, from_host; /* memory that is not CUDA's */
};

/* Reports the copy to the executor. */
static void tell_copy(bool to_host, bool from_host, const void *to, const void *from, size_t bytes) {
    if (!to_host && !from_host) fake_copied(to, from, bytes);
    if (!to_host && from_host) fake_written(to, bytes);
    if (to_host && !from_host) fake_read(from, bytes);
}

static void run_copy(void *argument) {
    const struct copy *copy = argument;
    if (!fake_skips(copy->bytes)) memcpy(copy->to, copy->from ? copy->from : (const void *)(copy + 1), copy->bytes);
    tell_copy(copy->to_host, copy->from_host, copy->to, copy->from, copy->bytes);
}

/* Reads the source, memory that is not CUDA's, before it returns. */
static int enqueue_staged(cudaStream_t stream, void *to, const void *from, size_t bytes) {
    if (fake_skips(bytes)) return cudaSuccess;
    struct copy *copy = malloc(sizeof *copy + bytes);
    if (!copy) return fake_error(cudaErrorMemoryAllocation);
    *copy = (struct copy){to, NULL, bytes, false, true};
    memcpy(copy + 1, from, bytes);
    const int status = fake_enqueue(stream, run_copy, copy, sizeof *copy + bytes);
    free(copy);
    return status;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    FAKE_CALL();
    const struct block target = block_of(to), source = block_of(from);
    if (kind != cudaMemcpyDefault || !fits(&target, to, bytes) || !fits(&source, from, bytes))
        return fake_error(cudaErrorInvalidValue);
    if (!target.base || !source.base) FAKE_UNCAPTURED();
    record_copy(stream, &target, to, &source, from, bytes);
    if (!bytes) return cudaSuccess;
    const struct copy copy = {to, from, bytes, !target.base, !source.base};
    const int status = source.base || !target.base ? fake_enqueue(stream, run_copy, &copy, sizeof copy)
                                                   : enqueue_staged(stream, to, from, bytes);
    if (status || target.base) return (cudaError_t)status;
    return cudaStreamSynchronize(stream); /* the caller's own memory is written before this returns */
}

struct copy_2d {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

static void run_copy_2d(void *argument) {
    const struct copy_2d *copy = argument;
    if (fake_skips(copy->width * copy->height)) return;
    for (size_t row = 0; row < copy->height; row++)
        memcpy(copy->to + row * copy->to_pitch, copy->from + row * copy->from_pitch, copy->width);
    for (size_t row = 0; row < copy->height; row++)
        fake_copied(copy->to + row * copy->to_pitch, copy->from + row * copy->from_pitch, copy->width);
}

/* Copies within blocks of CUDA's memory only. */
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    FAKE_CALL();
    if (!width || !height) return cudaSuccess;
    const struct block target = block_of(to), source = block_of(from);
    if (kind != cudaMemcpyDefault || width > to_pitch || width > from_pitch || !target.base || !source.base ||
        !fits(&target, to, (height - 1) * to_pitch + width) || !fits(&source, from, (height - 1) * from_pitch + width))
        return fake_error(cudaErrorInvalidValue);
    record_copy(stream, &target, to, &source, from, width * height);
    const struct copy_2d copy = {to, from, to_pitch, from_pitch, width, height};
    return (cudaError_t)fake_enqueue(stream, run_copy_2d, &copy, sizeof copy);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    FAKE_CALL();
    (void)kind;
    memcpy(to, from, bytes); /* at once: on the default stream, and other streams do not wait for that */
    tell_copy(!block_of(to).base, !block_of(from).base, to, from, bytes);
    return cudaSuccess;
}

struct fill {
    void *memory;
    int value;
    size_t bytes;
};

static void run_fill(void *argument) {
    const struct fill *fill = argument;
    if (!fake_skips(fill->bytes)) memset(fill->memory, fill->value, fill->bytes);
    fake_written(fill->memory, fill->bytes);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    FAKE_CALL();
    const struct block block = block_of(memory);
    if (!block.base || !fits(&block, memory, bytes)) return fake_error(cudaErrorInvalidValue);
    char where[64];
    if (fake_records()) {
        fake_name(where, sizeof where, memory);
        fake_work(stream, "fill %s %zu", where, bytes);
    }
    const struct fill fill = {memory, value, bytes};
    return (cudaError_t)fake_enqueue(stream, run_fill, &fill, sizeof fill);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes) {
    FAKE_CALL();
    memset(memory, value, bytes);
    fake_written(memory, bytes);
    return cudaSuccess;
}
