/* memory.c - memory for training, and lists that grow.
 *
 * Before a block lies a prefix of one cache line with the data to free it. Large blocks come from mmap: their pages are
 * zero already and cost nothing until they are touched. */
#include "spmd/base/memory.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LARGE = 2 << 20, HUGE_PAGE = 2 << 20, PAGE = 4096 };

struct prefix {
    void *base;
    size_t mapped; /* bytes; 0: base came from the heap */
};
_Static_assert(sizeof(struct prefix) <= SL_CACHE_LINE, "the prefix fits one cache line");

static atomic_uint_fast64_t takes, mapped; /* counts of the process, as the heap is the process's */

static void *with_prefix(char *memory, void *base, size_t mapped) {
    *(struct prefix *)(void *)(memory - SL_CACHE_LINE) = (struct prefix){base, mapped};
    return memory;
}

static void *take_small(size_t bytes) {
    const size_t whole = SL_CACHE_LINE + sl_round_up(bytes, SL_CACHE_LINE);
    char *base = aligned_alloc(SL_CACHE_LINE, whole);
    if (!base) return NULL;
    memset(base, 0, whole);
    return with_prefix(base + SL_CACHE_LINE, base, 0);
}

static void *take_large(size_t bytes) {
    const size_t used = sl_round_up(bytes, PAGE), whole = PAGE + used + HUGE_PAGE;
    char *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    const size_t lead = sl_round_up((uintptr_t)base + PAGE, HUGE_PAGE) - (uintptr_t)base;
    madvise(base + lead, used, MADV_HUGEPAGE); /* advice: kernels without huge pages refuse it */
    atomic_fetch_add_explicit(&mapped, used, memory_order_relaxed);
    return with_prefix(base + lead, base, whole);
}

void *sl_memory_take(size_t bytes) {
    atomic_fetch_add_explicit(&takes, 1, memory_order_relaxed);
    if (bytes > PTRDIFF_MAX - 2 * (size_t)HUGE_PAGE) return NULL;
    return bytes < LARGE ? take_small(bytes) : take_large(bytes);
}

void sl_memory_give(void *memory) {
    if (!memory) return;
    const struct prefix prefix = *(struct prefix *)(void *)((char *)memory - SL_CACHE_LINE);
    if (prefix.mapped) {
        atomic_fetch_sub_explicit(&mapped, prefix.mapped - PAGE - HUGE_PAGE, memory_order_relaxed);
        munmap(prefix.base, prefix.mapped);
    } else {
        free(prefix.base);
    }
}

/* madvise is not used: it would keep the process's other threads from mapping memory until it is done. */
void sl_memory_touch(void *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i += PAGE) ((volatile char *)memory)[i] = 0;
}

uint64_t sl_memory_count(void) { return atomic_load_explicit(&takes, memory_order_relaxed); }

uint64_t sl_memory_mapped(void) { return atomic_load_explicit(&mapped, memory_order_relaxed); }

void *sl_grow(void *array, int count, int *capacity, int least, size_t size) {
    if (count < *capacity) return array;
    if (*capacity > INT_MAX / 2) return NULL;
    const int wanted = *capacity ? 2 * *capacity : least;
    size_t bytes;
    if (__builtin_mul_overflow((size_t)wanted, size, &bytes)) return NULL;
    void *grown = realloc(array, bytes);
    if (grown) *capacity = wanted;
    return grown;
}
