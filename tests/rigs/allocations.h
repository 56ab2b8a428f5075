/* allocations.h - counts this program's calls of malloc and its kin. The linker redirects the calls of the program's
 * own objects to here; calls of libraries are not counted. Its tests are listed in tests/CMakeLists.txt. */
#ifndef SL_TESTS_RIGS_ALLOCATIONS_H
#define SL_TESTS_RIGS_ALLOCATIONS_H

#include <stddef.h>

static _Atomic long allocations;
static _Thread_local size_t taken, largest; /* of the calling thread: bytes, and of the largest call */

static inline void count_allocation(size_t size) {
    allocations++;
    taken += size;
    if (size > largest) largest = size;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);
void *__wrap_malloc(size_t size) {
    count_allocation(size);
    return __real_malloc(size);
}
void *__wrap_calloc(size_t number, size_t size) {
    count_allocation(number * size);
    return __real_calloc(number, size);
}
void *__wrap_realloc(void *memory, size_t size) {
    count_allocation(size);
    return __real_realloc(memory, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    count_allocation(size);
    return __real_aligned_alloc(alignment, size);
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    count_allocation(size);
    return __real_posix_memalign(memory, alignment, size);
}

#endif
