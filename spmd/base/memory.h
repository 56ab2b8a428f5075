/* memory.h - memory for training: aligned, counted, on huge pages if large; and lists that grow while a training is
 * planned.
 *
 * Everything is allocated before the first step; a test checks that the count stays the same afterwards. */
#ifndef SL_SPMD_BASE_MEMORY_H
#define SL_SPMD_BASE_MEMORY_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Allocates zeroed bytes, aligned to a cache line; from 2 MB on aligned to 2 MB, with huge pages advised. NULL without
 * memory. Free with sl_memory_give. */
void *sl_memory_take(size_t bytes);
void sl_memory_give(void *memory);

/* Writes zeros to some of the zeroed bytes, so that the caller makes their pages now. A page read before it is written
 * is made twice, and the second time all threads of the process are interrupted. */
void sl_memory_touch(void *memory, size_t bytes);

/* Calls of sl_memory_take since the process began. */
uint64_t sl_memory_count(void);
/* Bytes of the process's large blocks, which do not come from the heap. */
uint64_t sl_memory_mapped(void);

/* Makes room for one more element behind the COUNT elements of ARRAY, a list of SIZE bytes per element; free it with
 * free(). A full list is doubled; the first time it gets room for LEAST elements. Before the first call *CAPACITY is 0
 * and ARRAY is NULL. Returns the list, which may have moved; NULL without memory: the list is unchanged. */
void *sl_grow(void *array, int count, int *capacity, int least, size_t size);

/* BYTES rounded up to a multiple of ALIGNMENT. */
static inline size_t sl_round_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

SL_END_C
#endif
