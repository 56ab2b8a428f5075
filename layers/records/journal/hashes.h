/* hashes.h - hashes by places (spmd/base/places.h) of data in device memory, computed on the device.
 *
 * Each hash of a step has a number. Kernels add to its sums, after the queued work, while the host continues; all
 * hashes are copied to the host at once, before it waits for the queue anyway. If host and device share memory, the
 * host computes hashes itself, and these are not used. */
#ifndef SL_LAYERS_RECORDS_JOURNAL_HASHES_H
#define SL_LAYERS_RECORDS_JOURNAL_HASHES_H

#include "spmd/spec.h"
#include "spmd/spmd.h"

SL_BEGIN_C

struct sl_hashes; /* opaque; each coordinate has its own */

/* Bytes of COUNT hashes, in the device's memory and the host's; 0 if they share memory. Counted as
 * SL_MEMORY_RUNTIME. */
size_t sl_hashes_bytes(int count);
/* Opens hashes 0 to COUNT - 1, all 0. *HASHES is NULL if host and device share memory; do not call the functions below
 * then. SL_FAILED if memory is short. Free with sl_hashes_close. */
int sl_hashes_open(struct sl_hashes **hashes, struct sl_spmd *self, int count);
void sl_hashes_close(struct sl_hashes *hashes);

/* Adds COUNT elements DATA of DTYPE, SL_F32 or SL_BF16, in device memory, to hash NUMBER: at places from FIRST on, or
 * (shard) elements of SHARD from FIRST on, at their places in the whole array. */
void sl_hashes_add(struct sl_hashes *hashes, int number, uint64_t first, size_t count, enum sl_dtype dtype,
                   const void *data);
void sl_hashes_add_shard(struct sl_hashes *hashes, int number, const struct sl_shard *shard, size_t first, size_t count,
                         const float *data);
/* Queues a copy of all hashes to the host, complete once the host has waited for the queue; the sums are then cleared
 * for the next step. */
void sl_hashes_bring(struct sl_hashes *hashes);
/* Hash NUMBER, as last copied. */
uint64_t sl_hashes_at(const struct sl_hashes *hashes, int number);

SL_END_C
#endif
