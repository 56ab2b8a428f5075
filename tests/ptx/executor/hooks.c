/* hooks.c - executes kernels for fake CUDA: an image is looked up by its SHA-256 among the translated ones (images.py),
 * first in the folder that SL_PTX_IMAGES names (mutants). */
#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"
#include "launch.h"
#include "team.h"

/* IMAGES is the folder of translated images. */
static void *open_image(const void *image, size_t bytes) {
    char hash[SHA256_DIGEST_STRING_LENGTH], path[4096];
    const char *first = getenv("SL_PTX_IMAGES");
    snprintf(path, sizeof path, "%s/%s.jsonl", first ? first : IMAGES, SHA256Data(image, bytes, hash));
    if (access(path, R_OK)) snprintf(path, sizeof path, "%s/%s.jsonl", IMAGES, hash);
    if (access(path, R_OK)) {
        fprintf(stderr,
                "%s is not there: the program's image was not translated. Build the preset ptx (cmake --build --preset "
                "ptx)\n",
                path);
        _exit(3); /* a module is being opened: exit handlers would wait for that */
    }
    return ptx_open(path);
}

static void close_image(void *module) { ptx_close(module); }
static const void *find(void *module, const char *name) { return ptx_find(module, name); }
static void *variable(void *module, const char *name, size_t *bytes) { return ptx_variable(module, name, bytes); }

/* Blocks of a launch that asks for so many: every second one, as drawn, gets fewer. OpenMP allows that, as blocks take
 * several turns; if there are many turns, regions.c asks for fewer blocks than turns. */
static unsigned given(unsigned blocks) {
    static uint64_t launches;
    uint64_t drawn = ptx_options()->seed * 7919 + __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    drawn = (drawn ^ drawn >> 33) * 6364136223846793005u >> 32;
    return ptx_options()->counts || drawn % 2 || blocks == 1 ? blocks : 1 + (unsigned)(drawn / 2) % (blocks - 1);
}

static void launch(void *module, const void *kernel, unsigned blocks, unsigned threads, unsigned dynamic,
                   const void *parameters, size_t bytes) {
    ptx_launch(module, kernel, blocks ? given(blocks) : 0, threads, dynamic, parameters, bytes);
}

static void taken(const void *memory, size_t bytes, enum cudaMemoryType type) {
    ptx_memory_take(memory, bytes,
                    type == cudaMemoryTypeHost      ? PTX_HOST
                    : type == cudaMemoryTypeManaged ? PTX_MANAGED
                                                    : PTX_DEVICE);
}

static const struct fake_executor executor = {
    .open = open_image,
    .close = close_image,
    .find = find,
    .variable = variable,
    .launch = launch,
    .taken = taken,
    .freed = ptx_memory_free,
    .written = ptx_memory_written,
    .copied = ptx_memory_copied,
    .read = ptx_memory_read,
};

__attribute__((constructor)) static void install(void) { fake_executor = &executor; }
