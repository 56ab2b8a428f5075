/* bench_startup.c - the least that a process does before its first training step: our libraries are loaded, and the
 * memory of the article's classifier (parameters, gradients, two moments) is touched, by all cores at once. Its time is
 * taken by whoever starts it, until it has printed its JSON object. */
#include <stdio.h>
#include <string.h>

#include "benchmarks/measure.h"
#include "layers/models/classifier.h"
#include "spmd/base/memory.h"

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

int main(void) {
    const struct sl_classifier classifier = {.inputs = 784, .hidden = 512, .expansion = 1, .classes = 10, .layers = 8};
    struct sl_cores cores;
    struct sl_error error = {0};
    sl_cores_find(&cores);
    struct memory memory = {.size = 4 * sizeof(float) * sl_classifier_parameters(&classifier), .cores = cores.count};
    memory.bytes = sl_memory_take(memory.size);
    const bool touched = memory.bytes && sl_on_all_cores(&cores, touch, &memory) > 0;
    if (!sl_gemm_find(NULL, &error) || !touched) {
        fprintf(stderr, "bench_startup: %s\n", touched ? error.message : "no memory, or no threads");
        return SL_FAILED;
    }
    printf("{\"benchmark\":\"startup\",\"bytes\":%zu}\n", memory.size);
    sl_memory_give(memory.bytes);
    return SL_OK;
}
