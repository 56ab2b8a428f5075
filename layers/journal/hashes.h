/* hashes.h - hashes by places (spmd/base/places.h) of what lies in the memory of a device, made there.
 *
 * Each hash of a step has a number. Kernels add to its sums, behind what is in the queue, and the host goes on; all of
 * them come to it at once, before something that it waits for anyway. Where host and device share memory, the host
 * hashes what it reads, and there are none of these. */
#ifndef SL_LAYERS_JOURNAL_HASHES_H
#define SL_LAYERS_JOURNAL_HASHES_H

#include "spmd/spec.h"
#include "spmd/spmd.h"

SL_BEGIN_C

struct sl_hashes; /* opaque; each coordinate has its own */

/* Bytes that COUNT hashes take, of the device's memory and of the host's; 0 where the host shares the device's. Taken,
 * they count as SL_MEMORY_RUNTIME. */
size_t sl_hashes_bytes(int count);
/* Hashes 0 to COUNT - 1, all of them 0. *HASHES is NULL where the host shares the device's memory; the functions below
 * need others. SL_FAILED without memory. Free with sl_hashes_close. */
int sl_hashes_open(struct sl_hashes **hashes, struct sl_spmd *self, int count);
void sl_hashes_close(struct sl_hashes *hashes);

/* Adds to hash NUMBER the part that COUNT elements of DTYPE, SL_F32 or SL_BF16, make, DATA, in the device's memory:
 * from place FIRST on; or those of SHARD from element FIRST on, at their places in the array. */
void sl_hashes_add(struct sl_hashes *hashes, int number, uint64_t first, size_t count, enum sl_dtype dtype,
                   const void *data);
void sl_hashes_add_shard(struct sl_hashes *hashes, int number, const struct sl_shard *shard, size_t first, size_t count,
                         const float *data);
/* Puts into the queue that all come to the host, where they are once it has waited for the queue; and are 0 then, for
 * the next step. */
void sl_hashes_bring(struct sl_hashes *hashes);
/* Hash NUMBER, as it came. */
uint64_t sl_hashes_at(const struct sl_hashes *hashes, int number);

SL_END_C
#endif
