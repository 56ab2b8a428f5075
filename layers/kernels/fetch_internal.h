/* fetch_internal.h - asks the memory for parts of arrays before a kernel needs them.
 *
 * A core that asks ahead computes while the memory answers. On NVIDIA threads hide each other's waits, and nothing is
 * asked for. */
#ifndef SL_LAYERS_KERNELS_FETCH_INTERNAL_H
#define SL_LAYERS_KERNELS_FETCH_INTERNAL_H

#include "spmd/base/memory.h"
#include "spmd/base/vector_math.h"
#include "spmd/device/offload.h"

#if defined(SL_DEVICE_CUDA)
#define SL_FETCH(address, writes) ((void)(address))
#else
#define SL_FETCH(address, writes) __builtin_prefetch(address, writes)
#endif

/* Asks for elements [FIRST, END) of ARRAY. */
SL_INLINE void fetch(const float *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 0);
}
SL_INLINE void fetch_half(const uint16_t *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 0);
}
SL_INLINE void fetch_to_write(float *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 1);
}
SL_INLINE void fetch_half_to_write(uint16_t *array, size_t first, size_t end) {
    for (size_t i = first; i < end; i += SL_CACHE_LINE / sizeof *array) SL_FETCH(array + i, 1);
}

#endif
