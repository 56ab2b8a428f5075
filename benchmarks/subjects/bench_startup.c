/* bench_startup.c - the least time of a process until the end of its first training step: loads our libraries and
 * touches the memory of the article's classifier (parameters, gradients, two moments), by all cores at once. The caller
 * times the process until it has printed its first JSON object. The second object is the least time of the step itself:
 * the same process measures the step's floor. */
#include <stdio.h>
#include <string.h>

#include "benchmarks/floor.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

enum { BATCH = 128, REPLICAS = 2, ROWS = 8, ROUNDS = 3 };

struct memory {
    char *bytes;
    size_t size;
    int cores;
};

static double touch(void *arg, int i) {
    const struct memory *memory = arg;
    const size_t begin = memory->size * (size_t)i / (size_t)memory->cores;
    const size_t end = memory->size * (size_t)(i + 1) / (size_t)memory->cores;
    memset(memory->bytes + begin, 1, end - begin);
    return (double)(end - begin);
}

static int measure_step(struct sl_floor *floor, const struct sl_classifier *classifier, struct sl_error *error) {
    sl_floor_add_classifier(floor, classifier, BATCH, REPLICAS, ROWS);
    SL_TRY(sl_floor_open(floor, error));
    for (int round = 0; round < ROUNDS; round++) SL_TRY(sl_floor_measure(floor, error));
    return SL_OK;
}

static int touch_memory(const struct sl_classifier *classifier, const struct sl_cores *cores, struct sl_error *error) {
    struct memory memory = {.size = 4 * sizeof(float) * sl_classifier_parameters(classifier), .cores = cores->count};
    memory.bytes = sl_memory_take(memory.size);
    const bool touched = memory.bytes && sl_on_all_cores(cores, touch, &memory) > 0;
    sl_memory_give(memory.bytes);
    if (!touched) return sl_error_set(error, SL_FAILED, "no memory, or no threads");
    printf("{\"benchmark\":\"startup\",\"bytes\":%zu}\n", memory.size);
    fflush(stdout);
    return SL_OK;
}

int main(void) {
    const struct sl_classifier classifier = {.inputs = 784, .hidden = 512, .expansion = 1, .classes = 10, .layers = 8};
    struct sl_cores cores;
    struct sl_error error = {0};
    sl_cores_find(&cores);
    struct sl_floor floor = {.cores = &cores, .devices = sl_device.shares_memory ? 0 : 1, .seconds = 0.01};
    floor.backend = sl_gemm_find(NULL, &error);
    int status = floor.backend ? sl_cpu_level_check(&error) : error.status;
    if (status == SL_OK) status = touch_memory(&classifier, &cores, &error);
    if (status == SL_OK) status = measure_step(&floor, &classifier, &error);
    if (status == SL_OK)
        printf("{\"benchmark\":\"startup_step\",\"floor_ms\":%.9g}\n",
               sl_floor_products_ms(&floor) + sl_floor_optimizer_ms(&floor));
    else
        fprintf(stderr, "bench_startup: %s\n", error.message);
    sl_floor_close(&floor);
    return status;
}
