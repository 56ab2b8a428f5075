/* memory.h - the memory that training uses: aligned, counted, on huge pages where large.
 *
 * Everything is allocated before the first step; a test holds the count still after it. */
#ifndef SL_SPMD_BASE_MEMORY_H
#define SL_SPMD_BASE_MEMORY_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Zeroed bytes aligned to a cache line (to 2 MB, with huge pages advised, from 4 MB on); NULL when there are none. */
void *sl_memory_take(size_t bytes);
void sl_memory_give(void *memory);

/* Calls of sl_memory_take since the process began. */
uint64_t sl_memory_count(void);

/* BYTES rounded up to a multiple of ALIGNMENT. */
static inline size_t sl_round_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

SL_END_C
#endif
