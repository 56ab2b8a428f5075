/* images.c - the images put by clang's linker into the program and into shared libraries. Each becomes a module on
 * every opened device; regions' kernels are found by the regions' addresses. */
#include "spmd/device/cuda/images.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct region {
    const void *address;
    const char *name;
};

/* A binary's kernels on one device. */
struct loaded {
    size_t reduction;
    struct sl_region_kernel kernel[]; /* in the order of the binary's regions */
};

/* Lookups walk the list without a lock. So when a library is closed, its binary stays in the list, without its
 * regions. */
struct binary {
    struct binary *next;
    const struct sl_omp_binary *given; /* NULL: closed */
    struct loaded *_Atomic on[SL_MOST_DEVICES];
    int count;
    struct region region[]; /* sorted by address */
};

static struct binary *_Atomic binaries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while the list changes or code is loaded */

/* ---- registration, by the program's and its libraries' constructors ---- */

static int by_address(const void *a, const void *b) {
    const char *one = ((const struct region *)a)->address, *other = ((const struct region *)b)->address;
    return (one > other) - (one < other);
}

void __tgt_register_lib(struct sl_omp_binary *given);
void __tgt_unregister_lib(struct sl_omp_binary *given);

void __tgt_register_lib(struct sl_omp_binary *given) {
    struct binary *binary = calloc(1, sizeof *binary + (size_t)(given->last - given->first) * sizeof *binary->region);
    if (!binary) {
        fputs("no memory for the list of the program's target regions\n", stderr);
        abort();
    }
    binary->given = given;
    for (const struct sl_omp_entry *entry = given->first; entry < given->last; entry++) {
        if (entry->size) continue;
        binary->region[binary->count++] = (struct region){entry->address, entry->name};
    }
    qsort(binary->region, (size_t)binary->count, sizeof *binary->region, by_address);
    pthread_mutex_lock(&lock);
    binary->next = atomic_load(&binaries);
    atomic_store(&binaries, binary);
    pthread_mutex_unlock(&lock);
}

/* The binary's modules stay loaded: libraries are closed at the end of the program, perhaps after the driver. */
void __tgt_unregister_lib(struct sl_omp_binary *given) {
    pthread_mutex_lock(&lock);
    for (struct binary *binary = atomic_load(&binaries); binary; binary = binary->next) {
        if (binary->given != given) continue;
        binary->given = NULL;
        for (int device = 0; device < SL_MOST_DEVICES; device++) atomic_store(&binary->on[device], NULL);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- loading ---- */

/* The number of the image's architecture, as in sm_90: CUDA 13's tools have moved it within ELF's flags. */
static unsigned architecture(const struct sl_omp_image *image) {
    enum { ABI_AT = 8, ABI_OF_13 = 8, FLAGS_AT = 48, HEADER = 64 };
    uint32_t flags;
    if (image->end - image->begin < HEADER) return 0;
    memcpy(&flags, image->begin + FLAGS_AT, sizeof flags);
    return (unsigned char)image->begin[ABI_AT] >= ABI_OF_13 ? flags >> 8 & 0xff : flags & 0xff;
}

/* Code runs on GPUs of its architecture's generation that are not older. */
static bool fits(const struct sl_omp_binary *given, unsigned gpu) {
    bool found = false;
    for (int i = 0; i < given->count && !found; i++) {
        const unsigned its = architecture(&given->images[i]);
        found = !its || (its / 10 == gpu / 10 && its <= gpu);
    }
    return found;
}

bool sl_images_fit(unsigned gpu) {
    bool all = true;
    pthread_mutex_lock(&lock);
    for (const struct binary *binary = atomic_load(&binaries); binary && all; binary = binary->next)
        all = !binary->given || !binary->count || fits(binary->given, gpu);
    pthread_mutex_unlock(&lock);
    return all;
}

/* Loads the images the device accepts, newest architecture first. Returns the number of modules. */
static int load_modules(struct sl_cuda_queue *queue, const struct sl_omp_binary *given, CUmodule *module) {
    const struct sl_cuda_driver *driver = sl_cuda_driver(queue);
    int count = 0;
    for (unsigned next, of = ~0u; of; of = next) { /* from each architecture to the next lower one */
        next = 0;
        for (int i = 0; i < given->count; i++) {
            const unsigned its = architecture(&given->images[i]) + 1;
            if (its == of && driver->module_load(&module[count], given->images[i].begin) == CUDA_SUCCESS) count++;
            if (its < of && its > next) next = its;
        }
    }
    return count;
}

/* A kernel without an environment in its image needs none. */
static bool read_environment(struct sl_cuda_queue *queue, CUmodule module, struct sl_region_kernel *kernel) {
    char name[400];
    CUdeviceptr at;
    size_t bytes;
    kernel->environment = (struct sl_omp_kernel_environment){.mode = SL_OMP_SPMD};
    snprintf(name, sizeof name, "%s_kernel_environment", kernel->name);
    if (sl_cuda_driver(queue)->module_global(&at, &bytes, module, name) != CUDA_SUCCESS) return true;
    if (bytes < sizeof kernel->environment) {
        sl_cuda_fail(queue, "cuModuleGetGlobal", name);
        return false;
    }
    return SL_CUDA(queue, cudaMemcpyAsync(&kernel->environment, (const void *)(uintptr_t)at, sizeof kernel->environment,
                                          cudaMemcpyDefault, sl_cuda_stream(queue)));
}

static bool find_kernel(struct sl_cuda_queue *queue, int modules, const CUmodule *module,
                        struct sl_region_kernel *kernel) {
    CUresult status = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < modules; i++) {
        status = sl_cuda_driver(queue)->module_function(&kernel->function, module[i], kernel->name);
        if (status == CUDA_SUCCESS) return read_environment(queue, module[i], kernel);
        if (status != CUDA_ERROR_NOT_FOUND) break;
    }
    return sl_cuda_drove(queue, "cuModuleGetFunction", kernel->name, status);
}

static bool find_kernels(struct sl_cuda_queue *queue, const struct binary *binary, int modules, const CUmodule *module,
                         struct loaded *loaded) {
    for (int i = 0; i < binary->count; i++) {
        loaded->kernel[i].name = binary->region[i].name;
        if (!find_kernel(queue, modules, module, &loaded->kernel[i])) return false;
    }
    if (!SL_CUDA(queue, cudaStreamSynchronize(sl_cuda_stream(queue)))) return false; /* environments are read */
    for (int i = 0; i < binary->count; i++) {
        const struct sl_omp_kernel_environment *its = &loaded->kernel[i].environment;
        const size_t bytes = (size_t)its->reduction_bytes * its->reduction_length;
        if (bytes > loaded->reduction) loaded->reduction = bytes;
    }
    return true;
}

static bool load(struct sl_cuda_queue *queue, struct binary *binary) {
    const struct sl_omp_binary *given = binary->given;
    struct loaded *loaded = calloc(1, sizeof *loaded + (size_t)binary->count * sizeof *loaded->kernel);
    CUmodule *module = calloc((size_t)given->count + 1, sizeof *module);
    bool done = loaded && module;
    if (!done) sl_cuda_fail(queue, "cuModuleLoadData", "no memory for its kernels' names");
    const int modules = done ? load_modules(queue, given, module) : 0;
    if (done && !modules && binary->count) {
        sl_cuda_fail(queue, "cuModuleLoadData", "the device takes none of the program's images");
        done = false;
    }
    done = done && find_kernels(queue, binary, modules, module, loaded);
    for (int i = 0; i < modules && !done; i++) sl_cuda_driver(queue)->module_unload(module[i]);
    if (done) atomic_store(&binary->on[queue->device], loaded);
    if (!done) free(loaded);
    free(module); /* frees the array of handles; the modules live as long as the process */
    return done;
}

bool sl_images_load(struct sl_cuda_queue *queue) {
    if (!sl_cuda_driver(queue)) return false;
    if (queue->device >= SL_MOST_DEVICES) {
        sl_cuda_fail(queue, "cuModuleLoadData", "there are more devices than a program can use");
        return false;
    }
    bool done = true;
    pthread_mutex_lock(&lock);
    for (struct binary *binary = atomic_load(&binaries); binary && done; binary = binary->next)
        done = !binary->given || atomic_load(&binary->on[queue->device]) || load(queue, binary);
    pthread_mutex_unlock(&lock);
    return done;
}

const struct sl_region_kernel *sl_images_find(const void *address, int device) {
    const struct region key = {.address = address};
    for (struct binary *binary = atomic_load(&binaries); binary; binary = binary->next) {
        const struct loaded *loaded = atomic_load(&binary->on[device]);
        if (!loaded) continue;
        const struct region *found = bsearch(&key, binary->region, (size_t)binary->count, sizeof key, by_address);
        if (found) return &loaded->kernel[found - binary->region];
    }
    return NULL;
}

size_t sl_images_reduction(int device) {
    size_t most = 0;
    for (struct binary *binary = atomic_load(&binaries); binary; binary = binary->next) {
        const struct loaded *loaded = atomic_load(&binary->on[device]);
        if (loaded && loaded->reduction > most) most = loaded->reduction;
    }
    return most;
}
