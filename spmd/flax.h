/* flax.h - flax's random streams: a key folded with the path of the stream's module. */
#ifndef SL_SPMD_FLAX_H
#define SL_SPMD_FLAX_H

#include "spmd/random.h"

SL_BEGIN_C

/* The word folded in for a path of NAMES (NULL-terminated list) and counter N: the first four bytes, big-endian, of
 * SHA-1 over the names one after another, then N as its shortest big-endian bytes (none for 0). */
uint32_t sl_flax_path(const char *const *names, uint32_t n);

/* fold_static: sl_fold_in(key, sl_flax_path(names, n)). */
struct sl_key sl_flax_fold(struct sl_key key, const char *const *names, uint32_t n);

SL_END_C
#endif
