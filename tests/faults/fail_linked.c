/* fail_linked.c - linked into a program, the faults of fail_nth.c without preloading: one allocation of the program's
 * own objects fails, or that one and all after it. If AddressSanitizer watches, its malloc is the program's, and no
 * preloaded library comes before it: there the linker sends the calls here (tests/CMakeLists.txt has the list).
 *
 *     FAIL_NTH=N [FAIL_AFTER=1] [FAIL_COUNT=FILE] PROGRAM ... */
#include "tests/faults/no_memory.h"

#include <pthread.h>
#include <sys/mman.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t elements, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t elements, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);

__attribute__((constructor)) static void open_faults(void) { begin_to_count("FAIL_NTH", "FAIL_AFTER"); }

void *__wrap_malloc(size_t bytes) { return FAILS ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t elements, size_t bytes) { return FAILS ? NULL : __real_calloc(elements, bytes); }
void *__wrap_realloc(void *memory, size_t bytes) { return FAILS ? NULL : __real_realloc(memory, bytes); }
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return FAILS ? NULL : __real_aligned_alloc(alignment, bytes);
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    return FAILS ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
}
char *__wrap_strdup(const char *text) { return FAILS ? NULL : __real_strdup(text); }
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    return FAILS ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, file, offset);
}
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg) {
    return FAILS ? EAGAIN : __real_pthread_create(thread, attributes, run, arg);
}
