/* offload.h - the directives over kernels' loops: one source for hosts, x86_64 devices and NVIDIA GPUs.
 *
 *   SL_ELEMENTWISE(target, ...)  over a loop whose iterations are independent elements
 *   SL_ROWS(target)              over a loop whose iterations are independent rows (or blocks of columns)
 *   SL_LANES(...)                over a loop along a row, inside SL_ROWS. On NVIDIA each thread has copies of its own
 *                                of the variables around it: values that it sets are lost, but for reductions, and it
 *                                reaches arrays that threads share by a pointer. Threads share a reduction's variable:
 *                                if a loop lies around, a barrier stands between its last reading and its next reset
 *   SL_ADDS(reduction)           over a loop along a row, inside SL_ROWS, that adds numbers up: in order on the host
 *   SL_PARTS                     into so many parts an array is divided whose elements are added up; each part is a row
 *   SL_BLOCKS(target)            over a loop whose iterations are independent blocks of SL_BLOCK elements, or columns
 *   SL_IN_BLOCK()                over a loop along a block, inside SL_BLOCKS or SL_THREADS
 *   SL_THREADS()                 over a loop inside SL_ROWS whose iterations are independent: on NVIDIA a thread each
 *   SL_ATOMIC()                  before a statement that adds to a number which other iterations add to, too
 *   SL_FOUR                      elements of an array that a thread takes together, the step of loops over elements:
 *                                on NVIDIA 4 (layers/kernels/operands/fours_internal.h)
 *   SL_SLICES, SL_COLUMNS        into so many slices rows are divided that are added up; columns that a team then has
 *                                (layers/kernels/rows/slices_internal.h)
 *   SL_TEAMS                     so many teams keep a device busy: kernels with fewer rows divide these further
 *   SL_ABREAST                   at most so many iterations of SL_ROWS run at the same time, each with its own scratch
 *   SL_PIECE                     elements after which a loop over several large arrays asks the memory for more; on
 *                                devices, whose threads hide each other's waits, all at once
 *   SL_PARAMETERS                whether a region takes pointers best as parameters of its own, not in a struct: on
 *                                devices, which otherwise read that in memory
 *   SL_UNROLLED                  a loop over arrays of a thread's own: on GPUs as many copies of its body, each of
 *                                which knows its element, so that the arrays are registers
 *   SL_ROLLED                    a loop of few turns: on GPUs compilers make no copies of its body
 *   SL_CREWS                     whether a kernel may have a crew's help (spmd/base/crew.h): false on devices
 *   SL_STREAMS                   whether a piece can be written past the caches: false on devices
 *   SL_TOGETHER                  whether a kernel takes all parts that it is given in one region: on devices, where
 * each region is a launch; on the host a part stays in the caches from one loop to the next
 *
 * SL_ELEMENTWISE, SL_ROWS and SL_BLOCKS begin a target region. TARGET are the region's clauses: is_device_ptr(x, y)
 * with every pointer that the loop uses, and a reduction if the loop has one. The dots are clauses of a simd loop. On
 * the host there is no target region and only one thread: TARGET is ignored, and rows run in ascending order.
 * is_device_ptr takes plain variables only, so copy members of structs to locals first.
 *
 * Where the device has a queue, a region begins after what is in the queue. The directive is then two statements. So
 * it must stand inside a block, never alone behind an if or a loop without braces.
 *
 * The build chooses the meaning (never __NVPTX__), so that the device's compiler pass sees the same directives as the
 * host's pass:
 *   default            host: vector code, no OpenMP runtime
 *   SL_DEVICE_OFFLOAD  x86_64 devices: threads over elements and rows, vectors along rows
 *   SL_DEVICE_CUDA     NVIDIA: a thread for each element; a team for each row, its threads along the row; blocks of one
 *                      element: each thread walks down one column, and neighbouring threads read neighbouring columns
 *   SL_DEVICE_QUEUED   the host's vector code behind a queue: tests the NVIDIA build's order of work without a GPU, and
 *                      ends the program at a pointer that a GPU could not follow */
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
#define SL_COLUMNS 8 /* 32 bytes, which memory gives at least; with the slices the 128 threads of a team */
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
#define SL_ABREAST 1 /* one follows the other */
#endif

#ifndef SL_PIECE
#define SL_PIECE SIZE_MAX
#define SL_STREAMS false
#define SL_CREWS false
#endif

#define SL_IN_BLOCK() SL_PRAGMA(omp simd)

#endif
