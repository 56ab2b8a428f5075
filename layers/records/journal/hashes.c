/* hashes.c - hashes computed by kernels, and copied to the host at once. */
#include "layers/records/journal/hashes.h"

#include <stdlib.h>

#include "layers/kernels/kernels.h"
#include "spmd/base/places.h"
#include "spmd/device/device.h"

enum { PIECE = 1 << 30 }; /* the most elements of a kernel call: it counts in 32 bits */

struct sl_hashes {
    struct sl_spmd *self;
    const struct sl_kernels *kernels;
    int count;
    uint32_t *keys;   /* [SL_PLACES], on the device, as are */
    uint64_t *sums;   /* [count, SL_HASH_SUMS] and */
    uint64_t *hashes; /* [count] */
    uint64_t *here;   /* [count] copy of hashes in the host's memory */
};

/* Bytes per hash: its sums, and the hash itself on the device and on the host. */
static const size_t BYTES = (SL_HASH_SUMS + 2) * sizeof(uint64_t);

size_t sl_hashes_bytes(int count) {
    return sl_device.shares_memory ? 0 : SL_PLACES * sizeof(uint32_t) + (size_t)count * BYTES;
}

int sl_hashes_open(struct sl_hashes **hashes, struct sl_spmd *self, int count) {
    struct sl_places places;
    *hashes = NULL;
    if (sl_device.shares_memory) return SL_OK;
    struct sl_hashes *h = calloc(1, sizeof *h);
    *hashes = h;
    if (!h) return sl_fail(self, SL_FAILED, "no memory for hashes");
    *h = (struct sl_hashes){.self = self, .kernels = sl_kernels_select(), .count = count};
    h->keys = sl_device.take(sizeof places.low);
    h->sums = sl_device.take((size_t)count * SL_HASH_SUMS * sizeof *h->sums);
    h->hashes = sl_device.take((size_t)count * sizeof *h->hashes);
    h->here = sl_device.take_host((size_t)count * sizeof *h->here);
    if (!h->keys || !h->sums || !h->hashes || !h->here)
        return sl_fail(self, SL_FAILED, "no memory for the hashes of a step");
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, sl_hashes_bytes(count));
    sl_places_open(&places);
    sl_device.copy(h->keys, places.low, sizeof places.low);
    return SL_OK;
}

void sl_hashes_close(struct sl_hashes *h) {
    if (!h) return;
    sl_device.give(h->keys);
    sl_device.give(h->sums);
    sl_device.give(h->hashes);
    sl_device.give_host(h->here);
    free(h);
}

void sl_hashes_add(struct sl_hashes *h, int number, uint64_t first, size_t count, enum sl_dtype dtype,
                   const void *data) {
    const char *from = data;
    for (size_t part; count; count -= part, first += part, from += part * sl_dtype_size(dtype)) {
        const struct sl_hash_places places = {.first = first, .run = UINT32_MAX, .group = 1};
        part = count < PIECE ? count : PIECE;
        h->kernels->add_hash(part, from, dtype == SL_BF16, &places, h->keys, h->sums + (size_t)number * SL_HASH_SUMS);
    }
}

/* Rows of a shard's last dim, which are a stride apart in the array. */
struct rows {
    size_t width, count; /* elements of a row; rows */
    uint64_t stride;
};

/* The rows from the one that begins at element FIRST of SHARD on. */
static struct rows rows_from(const struct sl_shard *shard, size_t first) {
    const struct sl_shard_dim *last = &shard->dim[shard->dims - 1], *before = last - 1;
    struct rows rows = {.width = last->local, .count = 1};
    if (shard->dims == 1) return rows;
    rows.count = before->piece - first / last->local % before->piece;
    rows.stride = before->stride;
    return rows;
}

/* Calls kernels with whole rows, skipping the beginning of the first and the end of the last; rows that are too long,
 * run by run. */
void sl_hashes_add_shard(struct sl_hashes *h, int number, const struct sl_shard *shard, size_t first, size_t count,
                         const float *data) {
    const size_t run = sl_shard_run(shard), step = shard->dim[shard->dims - 1].segment;
    for (size_t part; count; count -= part, first += part, data += part) {
        const struct rows rows = rows_from(shard, first - first % shard->dim[shard->dims - 1].local);
        const size_t most = PIECE / rows.width, skipped = first % rows.width;
        const size_t whole = (rows.count < most ? rows.count : most) * rows.width, left = run - first % run;
        part = whole ? whole - skipped : left;
        if (part > count) part = count;
        if (!whole || part <= left) {
            sl_hashes_add(h, number, sl_shard_global_index(shard, first), part, SL_F32, data);
            continue;
        }
        const struct sl_hash_places places = {.first = sl_shard_global_index(shard, first - skipped),
                                              .step = step,
                                              .stride = rows.stride,
                                              .run = (uint32_t)run,
                                              .group = (uint32_t)(rows.width / run),
                                              .skipped = (uint32_t)skipped};
        h->kernels->add_hash(part, data, false, &places, h->keys, h->sums + (size_t)number * SL_HASH_SUMS);
    }
}

void sl_hashes_bring(struct sl_hashes *h) {
    h->kernels->add_up_hashes((size_t)h->count, h->sums, h->hashes);
    sl_device.zero(h->sums, (size_t)h->count * SL_HASH_SUMS * sizeof *h->sums);
    sl_device.copy_aside(h->here, h->hashes, (size_t)h->count * sizeof *h->here);
    sl_device.await_aside();
}

uint64_t sl_hashes_at(const struct sl_hashes *h, int number) { return h->here[number]; }
