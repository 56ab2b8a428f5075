/* memory.h - the memory that training uses: aligned, counted, on huge pages where large; and lists that grow while a
 * training is planned.
 *
 * Everything is allocated before the first step; a test holds the count still after it. */
#ifndef SL_SPMD_BASE_MEMORY_H
#define SL_SPMD_BASE_MEMORY_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Zeroed bytes aligned to a cache line (to 2 MB, with huge pages advised, from 2 MB on); NULL when there are none. */
void *sl_memory_take(size_t bytes);
void sl_memory_give(void *memory);

/* Writes zeros to some of the zeroed bytes, so that the caller makes their pages now. A page that is read before it is
 * written is made twice, and the second time all threads of the process are interrupted. */
void sl_memory_touch(void *memory, size_t bytes);

/* Calls of sl_memory_take since the process began. */
uint64_t sl_memory_count(void);
/* Bytes of the process's blocks that do not come from the heap, because they are large. */
uint64_t sl_memory_mapped(void);

/* Room for one more element behind the COUNT elements of ARRAY, a list of SIZE bytes an element that free() gives back.
 * A full list is doubled; the first time it has room for LEAST elements. *CAPACITY is 0 before that, and ARRAY is NULL.
 * Returns the list, which may have moved; NULL without memory, and then the list stays as it was. */
void *sl_grow(void *array, int count, int *capacity, int least, size_t size);

/* BYTES rounded up to a multiple of ALIGNMENT. */
static inline size_t sl_round_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

SL_END_C
#endif
