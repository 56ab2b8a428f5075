/* caches.c - declares and allocates caches. */
#include "layers/modules/calls/caches.h"

#include <stdlib.h>

#include "spmd/base/memory.h"
#include "spmd/device/device.h"

int sl_caches_declare(struct sl_caches *caches, size_t columns, bool once, struct sl_error *error) {
    const int number = caches->planned++;
    if (number < caches->count) return number;
    struct sl_cache *grown = sl_grow(caches->cache, caches->count, &caches->capacity, 16, sizeof *grown);
    if (!grown) {
        sl_error_set(error, SL_FAILED, "no memory to plan caches");
        return -1;
    }
    caches->cache = grown;
    caches->cache[caches->count++] = (struct sl_cache){.columns = columns, .once = once};
    return number;
}

/* Caches computed from parameters lie one after another. */
static size_t bytes_of(const struct sl_caches *caches, const struct sl_cache *cache) {
    const size_t rows = cache->once ? 1 : (size_t)caches->sequences * (size_t)caches->positions;
    const size_t bytes = rows * cache->columns * sl_dtype_size(caches->storage);
    return cache->once ? sl_round_up(bytes, SL_CACHE_LINE) : bytes;
}

size_t sl_caches_bytes(const struct sl_caches *caches, bool once) {
    size_t bytes = 0;
    for (int i = 0; i < caches->count; i++)
        if (caches->cache[i].once == once) bytes += bytes_of(caches, &caches->cache[i]);
    return bytes;
}

/* Allocates the caches computed from parameters as one block, so that it lies on huge pages. Touches the block now, so
 * that this takes no time of the first tokens. */
static int take_made(struct sl_caches *caches, struct sl_error *error) {
    const size_t bytes = sl_caches_bytes(caches, true);
    if (!bytes || caches->made) return SL_OK;
    char *at = caches->made = sl_device_take(caches->held, SL_MEMORY_PARAMETERS, bytes);
    if (!at) return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of copies of kernels", bytes);
    if (!sl_device.reaches(at)) sl_memory_touch(at, bytes);
    for (int i = 0; i < caches->count; i++) {
        struct sl_cache *cache = &caches->cache[i];
        if (!cache->once) continue;
        cache->data = at;
        at += bytes_of(caches, cache);
    }
    return SL_OK;
}

int sl_caches_take(struct sl_caches *caches, struct sl_error *error) {
    for (int i = 0; i < caches->count; i++) {
        struct sl_cache *cache = &caches->cache[i];
        if (cache->once || cache->data) continue;
        cache->data = sl_device_take(caches->held, SL_MEMORY_CACHES, bytes_of(caches, cache));
        if (!cache->data)
            return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of caches", sl_caches_bytes(caches, false));
    }
    return take_made(caches, error);
}

void sl_caches_close(struct sl_caches *caches) {
    for (int i = 0; i < caches->count; i++)
        if (!caches->cache[i].once) sl_device.give(caches->cache[i].data);
    sl_device.give(caches->made);
    free(caches->cache);
    *caches = (struct sl_caches){0};
}
