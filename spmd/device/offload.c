/* offload.c - OpenMP's x86_64 devices, which run on this machine's cores. They test the target regions without a GPU;
 * their memory is ordinary memory.
 *
 * OpenMP keeps the device and the numbers of threads per thread, and each coordinate is a thread. */
#include "spmd/device/device.h"

#include <fnmatch.h>
#include <link.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmd/base/memory.h"
#include "spmd/device/unqueued_internal.h"

/* Directory to which the runtime writes a device's code before it loads it; it ends the program if it cannot. It never
 * removes the file. Loaded code stays without it. */
static const char images[] = "/tmp";

static int remove_image(struct dl_phdr_info *object, size_t size, void *none) {
    (void)size, (void)none;
    if (!fnmatch("/tmp/tmpfile_??????", object->dlpi_name, FNM_PATHNAME)) unlink(object->dlpi_name);
    return 0;
}

static void remove_images(void) { dl_iterate_phdr(remove_image, NULL); }

/* For programs that use devices without opening them. Runs before the runtime's own exit function, which was registered
 * before. */
__attribute__((constructor)) static void remove_at_exit(void) { atexit(remove_images); }

/* The first region on a device loads its code. */
static bool offloads(void) {
    int initial = 1;
#pragma omp target map(from : initial)
    initial = omp_is_initial_device();
    remove_images();
    return !initial;
}

static int check(struct sl_error *error) {
    if (access(images, W_OK))
        return sl_error_set(error, SL_BAD_INPUT, "%s cannot be written to, where OpenMP puts its devices' code",
                            images);
    if (omp_get_num_devices() > 0 && offloads()) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "OpenMP finds no x86_64 device to compute on (its runtime's plugin is not installed, or "
                        "OMP_TARGET_OFFLOAD=DISABLED): use the preset host");
}

static int count(void) { return omp_get_num_devices(); }

static int open_device(int number, void **queue, struct sl_error *error) {
    (void)error;
    omp_set_default_device(number);
    omp_set_num_threads(1);
    omp_set_teams_thread_limit(1);
    offloads(); /* loads the code, and removes its file: a killed program would leave it */
    *queue = NULL;
    return SL_OK;
}

static void close_device(void) {}

/* The runtime does not promise an alignment: the cache line before a block holds the block's base for freeing. */
struct prefix {
    void *base;
    int device;
};
_Static_assert(sizeof(struct prefix) <= SL_CACHE_LINE, "the prefix fits one cache line");

static void *take(size_t bytes) {
    const int device = omp_get_default_device();
    if (bytes > PTRDIFF_MAX - 2 * (size_t)SL_CACHE_LINE) return NULL;
    char *base = omp_target_alloc(bytes + 2 * (size_t)SL_CACHE_LINE, device);
    if (!base) return NULL;
    char *memory = base + 2 * SL_CACHE_LINE - (uintptr_t)base % SL_CACHE_LINE;
    *(struct prefix *)(void *)(memory - SL_CACHE_LINE) = (struct prefix){base, device};
    return memset(memory, 0, bytes);
}

static void give(void *memory) {
    if (!memory) return;
    const struct prefix prefix = *(struct prefix *)(void *)((char *)memory - SL_CACHE_LINE);
    omp_target_free(prefix.base, prefix.device);
}

static bool reaches(const void *memory) { return memory != NULL; }

const struct sl_device_table sl_device = {
    .name = "offload",
    .shares_memory = true,
    .check = check,
    .count = count,
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .take_host = sl_memory_take,
    .give_host = sl_memory_give,
    .reaches = reaches,
    .copy = copy,
    .copy_rows = copy_rows,
    .copy_aside = copy,
    .await_aside = await_aside,
    .zero = zero,
    .settle = settle,
    .mark = mark,
    .follow = pass,
    .await = pass,
    .free_mark = pass,
    .constant = constant,
    .begin_step = begin_step,
    .end_step = end_step,
    .offloads = offloads,
    .distance = distance,
    .bus = bus,
};
