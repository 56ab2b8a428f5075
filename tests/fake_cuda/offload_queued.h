/* offload_queued.h - spmd/device/offload.h for threads in place of GPUs: a target region is the host's vector code
 * behind the queue. A pointer that a GPU could not read ends the program. */
#ifndef SL_TESTS_FAKE_CUDA_OFFLOAD_QUEUED_H
#define SL_TESTS_FAKE_CUDA_OFFLOAD_QUEUED_H

#include <stdio.h>
#include <stdlib.h>

#include "spmd/device/device.h"

/* A GPU could not work on the host's memory; an empty loop's pointers may lie just behind an array. */
static inline void sl_check_reach(int pointers, const void *const *memory, const char *file, int line) {
    for (int i = 0; i < pointers; i++) {
        const char *at = memory[i];
        if (!at || sl_device.reaches(at) || sl_device.reaches(at - 1)) continue;
        fprintf(stderr, "%s:%d: pointer %d of the target region's is one to the host's memory\n", file, line, i);
        abort();
    }
}

/* Turns the first clause into a call and a comma; text behind that comma is left out. */
#define SL_CHECK(...) SL_CHECK_FIRST(__VA_ARGS__, )
#define SL_CHECK_FIRST(first, ...) first
#define SL_CHECK_map(...) (void)0,
#define SL_CHECK_is_device_ptr(...)                                                                                    \
    sl_check_reach(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *), (const void *const[]){__VA_ARGS__},    \
                   __FILE__, __LINE__),

#define SL_ELEMENTWISE(clauses, ...)                                                                                   \
    sl_device.settle(NULL);                                                                                            \
    SL_CHECK(SL_CHECK_##clauses);                                                                                      \
    SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_ROWS(clauses)                                                                                               \
    sl_device.settle(NULL);                                                                                            \
    SL_CHECK(SL_CHECK_##clauses);
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_BLOCKS(clauses) SL_ROWS(clauses)
#define SL_BLOCK 64
#define SL_PARTS 7
#define SL_FOUR 4
#define SL_SLICES 3
#define SL_COLUMNS 128
#define SL_TEAMS 5

#endif
