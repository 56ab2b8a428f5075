/* fetch_internal.h - prefetches parts of arrays, and writes past the caches.
 *
 * With prefetches a core computes while it waits for memory. On NVIDIA GPUs threads hide each other's waits, and
 * nothing is prefetched. */
#ifndef SL_LAYERS_KERNELS_LOOPS_FETCH_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_FETCH_INTERNAL_H

#include <string.h>

#include "spmd/base/numbers/dtype.h"
#include "spmd/base/memory.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

#if defined(SL_DEVICE_CUDA)
#define SL_FETCH(address, writes) ((void)(address))
#else
#define SL_FETCH(address, writes) __builtin_prefetch(address, writes)
#endif

/* Prefetches elements [FIRST, END) of ARRAY. */
SL_INLINE void fetch(const float *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 0);
}
SL_INLINE void fetch_half(const uint16_t *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 0);
}
SL_INLINE void fetch_typed(enum sl_dtype type, const void *array, size_t first, size_t end) {
    if (type == SL_BF16)
        fetch_half(array, first, end);
    else
        fetch(array, first, end);
}
SL_INLINE void fetch_to_write(float *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 1);
}
SL_INLINE void fetch_half_to_write(uint16_t *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 1);
}

#if SL_STREAMS && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define SL_STREAM_LINE(line, array) __builtin_nontemporal_store(*(line), array)
#define SL_STREAM_END() __builtin_ia32_sfence()
#endif
#endif
#ifndef SL_STREAM_LINE
#define SL_STREAM_LINE(line, array) (*(array) = *(line))
#define SL_STREAM_END() ((void)0)
#endif

/* Writes PIECE to ARRAY past the caches, without a request to another core that has read the same line: if two cores
 * share no cache, a store with such a request takes 100 ns, and the next store waits for it. Other cores see the bytes
 * after end_streams. */
SL_INLINE void stream(const void *piece, void *array, size_t bytes) {
    typedef float line __attribute__((vector_size(SL_CACHE_LINE)));
    typedef float some_line __attribute__((vector_size(SL_CACHE_LINE), aligned(1)));
    const char *from = piece;
    char *to = array;
    const size_t before = -(uintptr_t)to % SL_CACHE_LINE;
    size_t i = before < bytes ? before : bytes;
    memcpy(to, from, i);
    for (; i + SL_CACHE_LINE <= bytes; i += SL_CACHE_LINE)
        SL_STREAM_LINE((const some_line *)(from + i), (line *)(to + i));
    memcpy(to + i, from + i, bytes - i);
}
SL_INLINE void end_streams(void) { SL_STREAM_END(); }

#endif
