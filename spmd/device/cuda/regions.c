/* regions.c - a target region is a kernel launch in the calling thread's queue: it begins after the earlier work in the
 * queue, and the host goes on.
 *
 * clang replaces regions by calls of LLVM's runtime; this file defines the called functions. Operands of the library's
 * regions are device pointers and numbers, which a launch passes as parameters. Other mapped data, such as a sum that
 * the host reads or a struct, passes through memory of the queue; if some of it comes back, the host waits for the
 * region. Larger mapped data and `target data` are refused: the queue then fails, as it does when a product fails. */
#include "spmd/device/cuda/regions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/base.h"
#include "spmd/device/device.h"
#include "spmd/device/cuda/images.h"
#include "spmd/device/cuda/tape.h"

enum {
    THREADS = 128, /* per block; clang distributes elements by this number */
    MOST_THREADS = 1024,
    MOST_BLOCKS = 3200, /* as in LLVM's runtime; with more blocks each takes several turns */
    RING = 1 << 16,     /* most bytes of mapped data in the queue at the same time */
    ALIGNMENT = 64,
};

/* A queue's device memory for regions, in this order: launch environment, sums across teams, ring, and the kernels' own
 * room. */
struct regions {
    char *memory;
    size_t reduction, used; /* bytes for sums; used bytes of the ring */
    int device;
    bool ready;           /* the environment has been written */
    struct regions *next; /* in the list of spare structs */
};

/* Structs without a queue, for the next queue: cuMemFree waits for all work of the device, and a message no peer
 * receives does not end before its communicator is aborted. */
static struct regions *spare;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

static char *ring_of(const struct regions *own) { return own->memory + ALIGNMENT + own->reduction; }

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* ---- queues ---- */

static void close_queue(struct sl_cuda_queue *queue) {
    struct regions *own = queue->regions;
    if (!own) return;
    pthread_mutex_lock(&spare_lock);
    own->next = spare;
    spare = own;
    pthread_mutex_unlock(&spare_lock);
    queue->regions = NULL;
}

/* Returns the struct of an earlier queue of the device; NULL: there is none. */
static struct regions *take_spare(int device) {
    pthread_mutex_lock(&spare_lock);
    struct regions **at = &spare, *found;
    while (*at && (*at)->device != device) at = &(*at)->next;
    found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&spare_lock);
    return found;
}

/* Makes room for the sums of all loaded kernels. */
static bool make_room(struct sl_cuda_queue *queue) {
    struct regions *own = queue->regions;
    const struct sl_cuda_driver *driver = sl_cuda_driver(queue);
    const size_t reduction = aligned(sl_images_reduction(queue->device));
    CUdeviceptr memory = 0;
    if (own->ready && reduction <= own->reduction) return true;
    if (own->memory && !(SL_CUDA(queue, cudaStreamSynchronize(sl_cuda_stream(queue))) &&
                         sl_cuda_drove(queue, "cuMemFree", "memory of target regions",
                                       driver->free((CUdeviceptr)(uintptr_t)own->memory))))
        return false;
    *own = (struct regions){.device = queue->device};
    if (!sl_cuda_drove(queue, "cuMemAlloc", "memory of target regions",
                       driver->allocate(&memory, ALIGNMENT + reduction + RING + SL_DEVICE_ROOM)))
        return false;
    own->memory = (char *)(uintptr_t)memory;
    own->reduction = reduction;
    const struct sl_omp_launch_environment environment = {.reduction = own->memory + ALIGNMENT};
    own->ready = SL_CUDA(queue, cudaMemcpyAsync(own->memory, &environment, sizeof environment, cudaMemcpyDefault,
                                                sl_cuda_stream(queue)));
    return own->ready;
}

static void *room_of(struct sl_cuda_queue *queue) {
    const struct regions *own = queue->regions;
    return own && own->memory ? ring_of(own) + RING : NULL;
}

static int open_queue(struct sl_cuda_queue *queue, struct sl_error *error) {
    struct regions *own = take_spare(queue->device);
    if (!own) own = calloc(1, sizeof *own);
    queue->regions = own;
    if (!own) return sl_error_set(error, SL_FAILED, "no memory for the queue of device %d", queue->device);
    own->device = queue->device;
    own->used = 0;
    if (sl_images_load(queue) && make_room(queue)) return SL_OK;
    close_queue(queue);
    return sl_device.settle(error);
}

static int check(int devices, struct sl_error *error) {
    for (int device = 0; device < devices; device++) {
        int major = 0, minor = 0;
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ||
            cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device))
            return sl_error_set(error, SL_FAILED, "device %d: cudaDeviceGetAttribute: %s", device,
                                cudaGetErrorString(cudaGetLastError()));
        const unsigned gpu = (unsigned)(10 * major + minor);
        if (!sl_images_fit(gpu))
            return sl_error_set(error, SL_BAD_INPUT,
                                "device %d is an NVIDIA GPU of sm_%u, and this build has code for %s: build it with "
                                "-DSL_CUDA_ARCHITECTURES=sm_%u",
                                device, gpu, SL_CUDA_ARCHITECTURES, gpu);
    }
    return SL_OK;
}

static void begin(void) {}

const struct sl_cuda_regions sl_cuda_regions = {
    .check = check, .open = open_queue, .close = close_queue, .room = room_of, .begin = begin};

/* ---- a launch ---- */

struct launch {
    struct sl_cuda_queue *queue;
    const struct sl_region_kernel *kernel;
    struct sl_kernel_launch what;
    const char *refused; /* why it is refused; NULL: it is not */
};

/* Takes BYTES of the ring. Earlier work in the queue reads its bytes before later work overwrites them. */
static char *take_from_ring(struct launch *launch, size_t bytes) {
    struct regions *own = launch->queue->regions;
    bytes = aligned(bytes ? bytes : 1);
    if (bytes > RING) {
        launch->refused =
            "it maps more than 64 KB: copy that with sl_device.copy, and give the region a device pointer";
        return NULL;
    }
    if (own->used + bytes > RING) own->used = 0;
    char *at = ring_of(own) + own->used;
    own->used += bytes;
    return at;
}

static void copy(struct launch *launch, void *to, const void *from, size_t bytes) {
    if (!bytes) return;
    launch->queue->busy = true;
    SL_CUDA(launch->queue, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, sl_cuda_stream(launch->queue)));
}

/* The kernel's parameter for argument I; *BACK is the address of its value if the host needs it back. */
static void *parameter(struct launch *launch, const struct sl_omp_arguments *a, uint32_t i, char **back) {
    const int64_t type = a->types[i];
    const size_t bytes = (size_t)a->sizes[i];
    if (type & SL_OMP_LITERAL) return a->bases[i];
    if (a->mappers && a->mappers[i]) launch->refused = "it has a mapper of its own: map plain variables";
    if (!bytes && !(type & SL_OMP_PRIVATE)) return a->bases[i]; /* a pointer to memory not mapped here */
    char *at = take_from_ring(launch, bytes);
    if (!at) return NULL;
    if (type & SL_OMP_TO) copy(launch, at, a->pointers[i], bytes);
    if (type & SL_OMP_FROM) *back = at;
    return at - ((char *)a->pointers[i] - (char *)a->bases[i]);
}

/* The first parameter: the launch environment. Its counters must be zero before sums. */
static void *environment_of(struct launch *launch) {
    const struct sl_omp_kernel_environment *its = &launch->kernel->environment;
    struct regions *own = launch->queue->regions;
    if (!its->reduction_bytes || !its->reduction_length) return SL_OMP_NO_ENVIRONMENT;
    const struct sl_cuda_fill fill = {own->memory, offsetof(struct sl_omp_launch_environment, reduction)};
    sl_cuda_enqueue(launch->queue, sl_cuda_fill, &fill, sizeof fill);
    return own->memory;
}

static unsigned least(unsigned one, unsigned other) { return one < other ? one : other; }

static unsigned threads_of(const struct launch *launch, const struct sl_omp_arguments *a) {
    const struct sl_omp_kernel_environment *its = &launch->kernel->environment;
    unsigned threads = a->threads[0] ? least(a->threads[0], MOST_THREADS) : THREADS;
    if (a->threads[0] && its->mode == SL_OMP_GENERIC) threads += 32; /* a warp for code outside parallel loops */
    return least(threads, its->most_threads > 0 ? (unsigned)its->most_threads : MOST_THREADS);
}

/* If the loop as a whole is parallel, a thread per iteration, otherwise a block. */
static unsigned blocks_of(const struct launch *launch, const struct sl_omp_arguments *a, unsigned threads) {
    if (a->teams[0] == SL_OMP_NO_TEAMS) return 1;
    if (a->teams[0]) return least(a->teams[0], INT32_MAX); /* drivers accept no more */
    const bool parallel = launch->kernel->environment.mode == SL_OMP_SPMD;
    const uint64_t blocks = parallel ? (a->trips + threads - 1) / threads : a->trips;
    return blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks ? (unsigned)blocks : 1;
}

static void enqueue(struct launch *launch, const struct sl_omp_arguments *a) {
    struct sl_kernel_launch *what = &launch->what;
    what->function = launch->kernel->function;
    what->name = launch->kernel->name;
    what->threads = threads_of(launch, a);
    what->blocks = blocks_of(launch, a, what->threads);
    what->shared = a->shared;
    sl_tape_launch(launch->queue, what);
}

static void run(struct launch *launch, const struct sl_omp_arguments *a) {
    char *back[SL_MOST_PARAMETERS] = {NULL};
    bool returns = false;
    struct sl_kernel_launch *what = &launch->what;
    what->parameter[what->count++] = environment_of(launch);
    for (uint32_t i = 0; i < a->count && !launch->refused; i++) {
        if (a->types[i] & SL_OMP_POINTEE) launch->refused = "it maps what a pointer in an object points to";
        if (!(a->types[i] & SL_OMP_PARAMETER)) continue;
        what->parameter[what->count++] = parameter(launch, a, i, &back[i]);
        returns = returns || back[i];
    }
    if (launch->refused) {
        char why[600];
        snprintf(why, sizeof why, "%s: %s", launch->kernel->name, launch->refused);
        sl_cuda_fail(launch->queue, "target region", why);
        return;
    }
    enqueue(launch, a);
    for (uint32_t i = 0; i < a->count && returns; i++)
        if (back[i]) copy(launch, a->pointers[i], back[i], (size_t)a->sizes[i]);
    if (returns || launch->queue->watched) sl_device.settle(NULL);
}

/* For regions of a library opened after the device. */
static const struct sl_region_kernel *load_late(struct sl_cuda_queue *queue, const void *region) {
    const struct sl_region_kernel *kernel =
        sl_images_load(queue) && make_room(queue) ? sl_images_find(region, queue->device) : NULL;
    if (!kernel && !queue->failure.status)
        sl_cuda_fail(queue, "target region", "it is in none of the program's images");
    return kernel;
}

/* ---- functions that clang's code calls ---- */

int __tgt_target_kernel(void *place, int64_t device, int32_t teams, int32_t threads, void *region,
                        struct sl_omp_arguments *arguments);
int __tgt_target_kernel_nowait(void *place, int64_t device, int32_t teams, int32_t threads, void *region,
                               struct sl_omp_arguments *arguments, int32_t before, void *list, int32_t before_noalias,
                               void *list_noalias);

/* Runs on the thread's device, which sl_device.open has chosen; the region's clause is ignored. Always returns 0:
 * another result would make the region run on the host. If the region cannot run, the queue has failed. */
int __tgt_target_kernel(void *place, int64_t device, int32_t teams, int32_t threads, void *region,
                        struct sl_omp_arguments *arguments) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    (void)place, (void)device, (void)teams, (void)threads; /* teams and threads are also in the arguments */
    if (!queue->regions) return 0;                         /* opening has failed, and has reported so */
    const struct sl_region_kernel *kernel = sl_images_find(region, queue->device);
    if (!kernel && !(kernel = load_late(queue, region))) return 0;
    struct launch launch;
    launch.queue = queue;
    launch.kernel = kernel;
    launch.what.count = 0;
    launch.refused = NULL;
    if (arguments->version != SL_OMP_ARGUMENTS_VERSION || arguments->count >= SL_MOST_PARAMETERS) {
        sl_cuda_fail(queue, "target region", "compiled by another clang than 19, or with more than 63 arguments");
        return 0;
    }
    run(&launch, arguments);
    return 0;
}

/* The queue's order is stricter than `depend`. */
int __tgt_target_kernel_nowait(void *place, int64_t device, int32_t teams, int32_t threads, void *region,
                               struct sl_omp_arguments *arguments, int32_t before, void *list, int32_t before_noalias,
                               void *list_noalias) {
    (void)before, (void)list, (void)before_noalias, (void)list_noalias;
    return __tgt_target_kernel(place, device, teams, threads, region, arguments);
}

#define SL_MAPPING                                                                                                     \
    void *place, int64_t device, int32_t count, void **bases, void **pointers, int64_t *sizes, int64_t *types,         \
        void **names, void **mappers
#define SL_DEPENDENCES int32_t before, void *list, int32_t before_noalias, void *list_noalias

/* Refuses `target data`, `target enter data`, `target exit data` and `target update`. */
#define SL_REFUSE(function, directive, ...)                                                                            \
    void function(__VA_ARGS__);                                                                                        \
    void function(__VA_ARGS__) {                                                                                       \
        sl_cuda_fail(sl_cuda_queue(), directive,                                                                       \
                     "there is no table of mapped memory: take it with sl_device.take, or build with "                 \
                     "-DSL_CUDA_REGIONS=libomptarget");                                                                \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
SL_REFUSE(__tgt_target_data_begin_mapper, "target data", SL_MAPPING)
SL_REFUSE(__tgt_target_data_end_mapper, "target data", SL_MAPPING)
SL_REFUSE(__tgt_target_data_update_mapper, "target update", SL_MAPPING)
SL_REFUSE(__tgt_target_data_begin_nowait_mapper, "target enter data", SL_MAPPING, SL_DEPENDENCES)
SL_REFUSE(__tgt_target_data_end_nowait_mapper, "target exit data", SL_MAPPING, SL_DEPENDENCES)
SL_REFUSE(__tgt_target_data_update_nowait_mapper, "target update", SL_MAPPING, SL_DEPENDENCES)
#pragma GCC diagnostic pop
