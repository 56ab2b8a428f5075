/* offload.h - the directives over kernels' loops: one source for hosts, x86_64 devices and NVIDIA GPUs.
 *
 *   SL_ELEMENTWISE(target, ...)  over a loop whose iterations are independent elements
 *   SL_ROWS(target)              over a loop whose iterations are independent rows (or blocks of columns)
 *   SL_LANES(...)                over a loop along a row, inside SL_ROWS. On NVIDIA each thread has its own copies of
 *                                the variables around it: values set in the loop are lost, except for reductions;
 *                                pass arrays shared by threads as pointers. Threads share a reduction's variable: if
 *                                an outer loop repeats it, a barrier must stand between its last read and its reset
 *   SL_ALIKE_LANES               a clause of SL_LANES: the number of lanes does not depend on the stores of the loop's
 *                                body, so its sums have the same bits in each form
 *   SL_ADDS(reduction)           over a loop along a row, inside SL_ROWS, that sums numbers: in order on the host
 *   SL_PARTS                     parts of an array whose elements are summed; each part is a row
 *   SL_BLOCKS(target)            over a loop whose iterations are independent blocks of SL_BLOCK elements, or columns
 *   SL_IN_BLOCK(...)             over a loop of one thread along a block or a row, inside SL_BLOCKS or SL_THREADS
 *   SL_THREADS()                 over a loop of independent iterations inside SL_ROWS: on NVIDIA a thread each
 *   SL_ATOMIC()                  before a statement that adds to a number to which other iterations add, too
 *   SL_FOUR                      consecutive elements per thread, the step of loops over elements: 4 on NVIDIA
 *                                (layers/kernels/loops/fours_internal.h)
 *   SL_SLICES, SL_COLUMNS        slices into which summed rows are divided; columns of a team in this case
 *                                (layers/kernels/loops/slices_internal.h)
 *   SL_TEAMS                     teams that keep a device busy: kernels with fewer rows divide these further
 *   SL_ABREAST                   most iterations of SL_ROWS that run at the same time, each with its own scratch
 *   SL_PIECE                     elements after which a loop over several large arrays prefetches more; on devices,
 *                                whose threads hide each other's waits, one piece has all elements
 *   SL_PARAMETERS                whether pointers should be parameters of a region, not fields of a struct: true on
 *                                devices, which would read the struct in memory
 *   SL_UNROLLED                  over a loop over arrays of one thread: on GPUs its body is fully unrolled, so that
 *                                the arrays are registers
 *   SL_ROLLED                    over a loop of few iterations: on GPUs compilers do not unroll it
 *   SL_CREWS                     whether a kernel may use a crew (spmd/base/crew.h): false on devices
 *   SL_STREAMS                   whether a piece can be written past the caches: false on devices
 *   SL_TOGETHER                  whether a kernel computes all its parts in one region: true on devices, which launch
 *                                a kernel per region; on the host a part stays in the caches between loops
 *
 * SL_ELEMENTWISE, SL_ROWS and SL_BLOCKS begin a target region. TARGET are the region's clauses: is_device_ptr(x, y)
 * with every pointer the loop uses, and a reduction if the loop has one. The dots are clauses of a simd loop. On
 * the host there is no target region and only one thread: TARGET is ignored, and rows run in ascending order.
 * is_device_ptr takes plain variables only, so copy members of structs to locals first.
 *
 * If the device has a queue, a region begins after the earlier work in the queue. The directive is then two
 * statements, so it must be inside a block, never alone behind an if or a loop without braces.
 *
 * The build chooses the meaning (never __NVPTX__), so that the device's compiler pass sees the same directives as the
 * host's pass:
 *   default            host: vector code, no OpenMP runtime
 *   SL_DEVICE_OFFLOAD  x86_64 devices: threads over elements and rows, vectors along rows
 *   SL_DEVICE_CUDA     NVIDIA: a thread for each element; a team for each row, its threads along the row; blocks of one
 *                      element: each thread walks down one column, and neighbouring threads read neighbouring columns
 *   SL_DEVICE_QUEUED   the host's vector code behind a queue: tests the NVIDIA build's order of work without a GPU, and
 *                      ends the program at a pointer that a GPU could not dereference */
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
#define SL_ABREAST 64
#define SL_ATOMIC() SL_PRAGMA(omp atomic)
#elif defined(SL_DEVICE_CUDA)
#define SL_ELEMENTWISE(clauses, ...)                                                                                   \
    sl_device.begin_region();                                                                                          \
    SL_PRAGMA(omp target teams distribute parallel for simd clauses __VA_ARGS__)
#define SL_ROWS(clauses)                                                                                               \
    sl_device.begin_region();                                                                                          \
    SL_PRAGMA(omp target teams distribute clauses)
#define SL_LANES(...) SL_PRAGMA(omp parallel for simd default(firstprivate) __VA_ARGS__) SL_ROLLED
#define SL_BLOCKS(clauses)                                                                                             \
    sl_device.begin_region();                                                                                          \
    SL_PRAGMA(omp target teams distribute parallel for clauses)
#define SL_BLOCK 1
#define SL_ABREAST 64
#define SL_ADDS(...) SL_LANES(__VA_ARGS__)
#define SL_ATOMIC() SL_PRAGMA(omp atomic)
#define SL_PARTS 1024
#define SL_THREADS() SL_PRAGMA(omp parallel for)
#define SL_FOUR 4
#define SL_UNROLLED SL_PRAGMA(clang loop unroll(full))
#if defined(__clang__)
#define SL_ROLLED SL_PRAGMA(clang loop unroll(disable))
#endif
#define SL_SLICES 16
#define SL_COLUMNS 8 /* 32 bytes, the smallest memory access; with the slices the 128 threads of a team */
#define SL_TEAMS 264 /* two for each processor of the largest GPUs */
#elif defined(SL_DEVICE_QUEUED)
#include <offload_queued.h> /* tests/fake_cuda */
#else
#define SL_ELEMENTWISE(clauses, ...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_ROWS(clauses)
#define SL_LANES(...) SL_PRAGMA(omp simd __VA_ARGS__)
#define SL_BLOCKS(clauses)
#define SL_BLOCK 1024 /* floats: a block stays in the first-level cache while rows or arrays pass over it */
#define SL_PIECE 128
#define SL_STREAMS true
#define SL_CREWS true
#define SL_PARAMETERS false
#define SL_TOGETHER false
#endif

#ifndef SL_TOGETHER
#define SL_TOGETHER true
#endif

#ifndef SL_PARAMETERS
#define SL_PARAMETERS true
#endif

/* gcc takes more lanes if a loop stores bf16; clang does not. */
#if !defined(SL_DEVICE_CUDA) && !defined(__clang__)
#define SL_ALIKE_LANES simdlen(16)
#else
#define SL_ALIKE_LANES
#endif

#ifndef SL_ADDS
#define SL_ADDS(...)
#endif

#ifndef SL_PARTS
#define SL_PARTS 1
#endif

#ifndef SL_FOUR
#define SL_FOUR 1
#endif

#ifndef SL_UNROLLED
#define SL_UNROLLED
#endif

#ifndef SL_ROLLED
#define SL_ROLLED
#endif

#ifndef SL_SLICES
#define SL_SLICES 1
#define SL_COLUMNS SL_BLOCK
#endif

#ifndef SL_TEAMS
#define SL_TEAMS 1
#endif

#ifndef SL_THREADS
#define SL_THREADS()
#endif

#ifndef SL_ATOMIC
#define SL_ATOMIC()
#endif

#ifndef SL_ABREAST
#define SL_ABREAST 1 /* rows run one after another */
#endif

#ifndef SL_PIECE
#define SL_PIECE SIZE_MAX
#define SL_STREAMS false
#define SL_CREWS false
#endif

#define SL_IN_BLOCK(...) SL_PRAGMA(omp simd __VA_ARGS__)

#endif
