/* offload.h - the directives over kernels' loops: one source for hosts, x86_64 devices and NVIDIA GPUs.
 *
 *   SL_ELEMENTWISE(target, ...)  over a loop whose iterations are independent elements
 *   SL_ROWS(target)              over a loop whose iterations are independent rows (or blocks of columns)
 *   SL_LANES(...)                over a loop along a row, inside SL_ROWS
 *
 * The first two begin a target region. TARGET are its clauses: is_device_ptr(x, y) with every pointer that the loop
 * uses, and a reduction where there is one. The dots are clauses of vector loops. On the host there is no region and
 * one thread, so that TARGET means nothing and rows run in ascending order. is_device_ptr takes variables alone:
 * members of structs are copied to locals first.
 *
 * Where the device has a queue, a region begins after what is in it: the first two are then two statements, so that
 * they stand in a block, never alone behind an if or a loop without braces.
 *
 * The build chooses (never __NVPTX__), so that a device's compiler pass sees the directives that the host's saw:
 *   default            host: vector code, no OpenMP runtime
 *   SL_DEVICE_OFFLOAD  x86_64 devices: threads over elements and rows, vectors along rows
 *   SL_DEVICE_CUDA     NVIDIA: a team a row, its threads along the row
 *   SL_DEVICE_QUEUED   the host's vector code behind a queue: for tests of what NVIDIA's builds do, without a GPU
 *                      (and pointers that a GPU could not follow end the program) */
#ifndef SL_SPMD_OFFLOAD_H
#define SL_SPMD_OFFLOAD_H

#include "spmd/device.h"

#define SL_PRAGMA(...) _Pragma(#__VA_ARGS__)

#if defined(SL_DEVICE_OFFLOAD)
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses) SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#elif defined(SL_DEVICE_CUDA)
#define SL_ELEMENTWISE(clauses, ...)                                                                                   \
    sl_device.settle(NULL);                                                                                            \
    SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses)                                                                                               \
    sl_device.settle(NULL);                                                                                            \
    SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp parallel for simd __VA_ARGS__)
#elif defined(SL_DEVICE_QUEUED)
#define SL_ELEMENTWISE(clauses, ...)                                                                                   \
    sl_device.settle(NULL);                                                                                            \
    SL_CHECK(SL_CHECK_##clauses);                                                                                      \
    SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_ROWS(clauses)                                                                                               \
    sl_device.settle(NULL);                                                                                            \
    SL_CHECK(SL_CHECK_##clauses);
/* The first clause becomes a call and a comma, what follows the comma is left out. */
#define SL_CHECK(...) SL_CHECK_FIRST(__VA_ARGS__, )
#define SL_CHECK_FIRST(first, ...) first
#define SL_CHECK_map(...) (void)0,
#define SL_CHECK_is_device_ptr(...)                                                                                    \
    sl_check_reach(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *), (const void *const[]){__VA_ARGS__},    \
                   __FILE__, __LINE__),

#include <stdio.h>
#include <stdlib.h>

/* A GPU could not work on the host's memory; an empty loop's pointers may lie just behind an array. */
static inline void sl_check_reach(int pointers, const void *const *memory, const char *file, int line) {
    for (int i = 0; i < pointers; i++) {
        const char *at = memory[i];
        if (!at || sl_device.reaches(at) || sl_device.reaches(at - 1)) continue;
        fprintf(stderr, "%s:%d: pointer %d of the target region's is one to the host's memory\n", file, line, i);
        abort();
    }
}
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#else
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_ROWS(clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#endif

#endif
