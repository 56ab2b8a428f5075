/* offload.h - the directives over kernels' loops: one source for hosts, x86_64 devices and NVIDIA GPUs.
 *
 *   SL_ELEMENTWISE(target, ...)  over a loop whose iterations are independent elements
 *   SL_ROWS(target)              over a loop whose iterations are independent rows (or blocks of columns)
 *   SL_LANES(...)                over a loop along a row, inside SL_ROWS
 *   SL_BLOCKS(target)            over a loop whose iterations are independent blocks of SL_BLOCK elements, or columns
 *   SL_IN_BLOCK()                over a loop along a block, inside SL_BLOCKS
 *
 * All but those that are inside begin a target region. TARGET are its clauses: is_device_ptr(x, y) with every pointer
 * that the loop uses, and a reduction where there is one. The dots are clauses of vector loops. On the host there is no
 * region and one thread, so that TARGET means nothing and rows run in ascending order. is_device_ptr takes variables
 * alone: members of structs are copied to locals first.
 *
 * Where the device has a queue, a region begins after what is in it: its directive is then two statements, and so
 * stands in a block, never alone behind an if or a loop without braces.
 *
 * The build chooses (never __NVPTX__), so that a device's compiler pass sees the directives that the host's saw:
 *   default            host: vector code, no OpenMP runtime
 *   SL_DEVICE_OFFLOAD  x86_64 devices: threads over elements and rows, vectors along rows
 *   SL_DEVICE_CUDA     NVIDIA: a thread an element; a team a row, its threads along the row; blocks of one element, so
 *                      that a thread passes all rows of its column while its neighbours read the neighbouring columns
 *   SL_DEVICE_QUEUED   the host's vector code behind a queue: for tests of what NVIDIA's builds do, without a GPU
 *                      (and pointers that a GPU could not follow end the program) */
#ifndef SL_SPMD_DEVICE_OFFLOAD_H
#define SL_SPMD_DEVICE_OFFLOAD_H

#include "spmd/device/device.h"

#define SL_PRAGMA(...) _Pragma(#__VA_ARGS__)

#if defined(SL_DEVICE_OFFLOAD)
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses) SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_BLOCKS(clauses) SL_PRAGMA(omp target teams distribute clauses)
#define SL_BLOCK 1024
#elif defined(SL_DEVICE_CUDA)
#define SL_ELEMENTWISE(clauses, ...)                                                                                   \
    sl_device.settle(NULL);                                                                                            \
    SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses)                                                                                               \
    sl_device.settle(NULL);                                                                                            \
    SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp parallel for simd __VA_ARGS__)
#define SL_BLOCKS(clauses)                                                                                             \
    sl_device.settle(NULL);                                                                                            \
    SL_PRAGMA(omp target teams distribute parallel for clauses)
#define SL_BLOCK 1
#elif defined(SL_DEVICE_QUEUED)
#include "offload_queued.h" /* tests/fake_cuda */
#else
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_ROWS(clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_BLOCKS(clauses)
#define SL_BLOCK 1024 /* what stays in the first-level cache while rows, or arrays, pass */
#endif

#define SL_IN_BLOCK() SL_PRAGMA(omp simd)

#endif
