/* bench_checkpoint.c - cost of checksums: a store of tensors is saved to a file and loaded again, with checksums and
 * without, in turns; and checksums of data in memory without a file. Prints the medians as one JSON object.
 *
 * Saving is coordinate 0's part of sl_checkpoint_save: a file is made in place, the tensors are copied into it, and it
 * is committed, which includes syncing it to the disk. Loading is coordinate 0's part of sl_checkpoint_load: the file
 * is mapped, verified (with checksums or, without, for floats that are not finite), and copied out. The file is in the
 * page cache then, so only the times of saving include the disk's speed; in /dev/shm none do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benchmarks/measure.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/base/hash.h"
#include "spmd/base/memory.h"

enum { TENSORS = 64, MOST_ROUNDS = 99 };

enum { SAVE, LOAD, LOAD_UNSEEN, HASH, TIMES };

struct bench {
    char path[4096];
    size_t bytes;                          /* of a tensor */
    char *memory;                          /* [TENSORS][bytes] */
    double seconds[TIMES][2][MOST_ROUNDS]; /* without checksums, with */
    struct sl_error error;
};

static int save(struct bench *bench, bool checksums) {
    struct sl_store store = {.checksums = checksums};
    const size_t shape[] = {bench->bytes / sizeof(float)};
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "tensor.%02d", i);
        sl_store_declare(&store, name, SL_F32, 1, shape);
    }
    int status = sl_safetensors_create(&store, bench->path, &bench->error);
    for (int i = 0; i < store.count && status == SL_OK; i++) {
        memcpy(store.tensor[i].array.data, bench->memory + (size_t)i * bench->bytes, bench->bytes);
        sl_store_relax(&store);
    }
    if (status == SL_OK) status = sl_safetensors_commit(&store, NULL, NULL, &bench->error);
    sl_store_free(&store);
    return status;
}

static int load(struct bench *bench, bool verifies) {
    struct sl_store store = {0};
    SL_TRY(sl_safetensors_map(&store, bench->path, &bench->error));
    int status = verifies ? sl_safetensors_verify(&store, NULL, NULL, &bench->error) : SL_OK;
    for (int i = 0; i < store.count && status == SL_OK; i++) {
        memcpy(bench->memory + (size_t)i * bench->bytes, store.tensor[i].array.data, bench->bytes);
        sl_store_relax(&store);
    }
    sl_store_free(&store);
    return status;
}

static int measure(struct bench *bench, int round, bool checksums) {
    const double began = sl_now();
    SL_TRY(save(bench, checksums));
    const double saved = sl_now();
    SL_TRY(load(bench, true));
    const double loaded = sl_now();
    SL_TRY(load(bench, false));
    const double unseen = sl_now();
    uint64_t hash = 0;
    for (int i = 0; i < TENSORS; i++) hash ^= sl_hash(bench->memory + (size_t)i * bench->bytes, bench->bytes);
    const double ended = hash ? sl_now() : 0;
    bench->seconds[SAVE][checksums][round] = saved - began;
    bench->seconds[LOAD][checksums][round] = loaded - saved;
    bench->seconds[LOAD_UNSEEN][checksums][round] = unseen - loaded;
    bench->seconds[HASH][checksums][round] = ended - unseen;
    return SL_OK;
}

static int run(struct bench *bench, int rounds) {
    const size_t floats = TENSORS * bench->bytes / sizeof(float);
    bench->memory = sl_memory_take(TENSORS * bench->bytes);
    if (!bench->memory) return sl_error_set(&bench->error, SL_FAILED, "no memory");
    for (size_t i = 0; i < floats; i++) ((float *)(void *)bench->memory)[i] = (float)(i * 2654435761u % 1000003);
    SL_TRY(save(bench, false)); /* the first file takes its pages */
    for (int round = 0; round < 2 * rounds; round++) SL_TRY(measure(bench, round / 2, round % 2));
    const double gigabytes = 1e-9 * (double)(TENSORS * bench->bytes);
    double speed[TIMES][2];
    for (int t = 0; t < TIMES; t++)
        for (int with = 0; with < 2; with++) speed[t][with] = gigabytes / sl_median(rounds, bench->seconds[t][with]);
    printf("{\"benchmark\":\"checkpoint\",\"gigabytes\":%.3f,\"rounds\":%d,\"save\":%.3f,\"save_checksums\":%.3f,"
           "\"load_unseen\":%.3f,\"load\":%.3f,\"load_checksums\":%.3f,\"hash\":%.3f}\n",
           gigabytes, rounds, speed[SAVE][0], speed[SAVE][1], speed[LOAD_UNSEEN][1], speed[LOAD][0], speed[LOAD][1],
           speed[HASH][1]);
    return SL_OK;
}

int main(int argc, char **argv) {
    static struct bench bench;
    const char *directory = "/tmp";
    int megabytes = 1024, rounds = 5;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--directory")) {
            directory = value;
        } else if (!strcmp(argv[i], "--megabytes")) {
            SL_TRY(sl_read_integer("megabytes", value, 1, 1 << 20, &megabytes));
        } else if (!strcmp(argv[i], "--rounds")) {
            SL_TRY(sl_read_integer("rounds", value, 1, MOST_ROUNDS, &rounds));
        } else {
            fprintf(stderr, "bench_checkpoint: [--directory DIR] [--megabytes N] [--rounds N]; speeds are GB/s\n");
            return SL_BAD_INPUT;
        }
    }
    snprintf(bench.path, sizeof bench.path, "%s/bench_checkpoint.%ld", directory, (long)getpid());
    bench.bytes = ((size_t)megabytes << 20) / TENSORS;
    const int status = run(&bench, rounds);
    unlink(bench.path);
    sl_memory_give(bench.memory);
    if (status) fprintf(stderr, "bench_checkpoint: %s\n", bench.error.message);
    return status;
}
