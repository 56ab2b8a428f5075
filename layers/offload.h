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
 * The build chooses (never __NVPTX__), so that a device's compiler pass sees the directives that the host's saw:
 *   default            host: vector code, no OpenMP runtime
 *   SL_DEVICE_OFFLOAD  x86_64 devices: threads over elements and rows, vectors along rows
 *   SL_DEVICE_CUDA     NVIDIA: a team a row, its threads along the row */
#ifndef SL_LAYERS_OFFLOAD_H
#define SL_LAYERS_OFFLOAD_H

#define SL_PRAGMA(...) _Pragma(#__VA_ARGS__)

#if defined(SL_DEVICE_OFFLOAD)
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses) SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#elif defined(SL_DEVICE_CUDA)
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses) SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp parallel for simd __VA_ARGS__)
#else
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_ROWS(clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#endif

#endif
