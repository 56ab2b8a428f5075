/* fail_nth.c - preloaded into a program, makes one allocation of it fail, or that one and all after it.
 *
 *     LD_PRELOAD=fail_nth.so FAIL_NTH=N [FAIL_AFTER=1] [FAIL_LIBRARIES=1] [FAIL_COUNT=FILE] PROGRAM ...
 *
 * Counts calls of malloc, calloc, realloc, aligned_alloc, posix_memalign, strdup, mmap and pthread_create by the
 * program itself, with FAIL_LIBRARIES also by its libraries, from the start of main on. FAIL_COUNT
 * receives their number when the program ends. Without FAIL_NTH none fails. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/faults/no_memory.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

typedef void *map(void *, size_t, int, int, int, off_t);
typedef int start(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static map *real_mmap;
static start *real_pthread_create;

__attribute__((constructor)) static void open_faults(void) {
    void *symbol = dlsym(RTLD_NEXT, "mmap");
    memcpy(&real_mmap, &symbol, sizeof symbol);
    symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real_pthread_create, &symbol, sizeof symbol);
    libraries = getenv("FAIL_LIBRARIES");
    begin_to_count("FAIL_NTH", "FAIL_AFTER");
}

void *malloc(size_t bytes) { return FAILS ? NULL : __libc_malloc(bytes); }
void *calloc(size_t elements, size_t bytes) { return FAILS ? NULL : __libc_calloc(elements, bytes); }
void *realloc(void *memory, size_t bytes) { return FAILS ? NULL : __libc_realloc(memory, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return FAILS ? NULL : __libc_memalign(alignment, bytes); }

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    if (FAILS) return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

char *strdup(const char *text) {
    char *copy = FAILS ? NULL : __libc_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    return FAILS ? MAP_FAILED : real_mmap(address, bytes, protection, flags, file, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg) {
    return FAILS ? EAGAIN : real_pthread_create(thread, attributes, run, arg);
}
