/* caches.c - declares caches and takes their memory. */
#include "layers/modules/caches.h"

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

static size_t bytes_of(const struct sl_caches *caches, const struct sl_cache *cache) {
    const size_t rows = cache->once ? 1 : (size_t)caches->sequences * (size_t)caches->positions;
    return rows * cache->columns * sl_dtype_size(caches->storage);
}

size_t sl_caches_bytes(const struct sl_caches *caches) {
    size_t bytes = 0;
    for (int i = 0; i < caches->count; i++) bytes += bytes_of(caches, &caches->cache[i]);
    return bytes;
}

int sl_caches_take(struct sl_caches *caches, struct sl_error *error) {
    for (int i = 0; i < caches->count; i++) {
        struct sl_cache *cache = &caches->cache[i];
        if (!cache->data) cache->data = sl_device_take(caches->held, SL_MEMORY_CACHES, bytes_of(caches, cache));
        if (!cache->data)
            return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of caches", sl_caches_bytes(caches));
    }
    return SL_OK;
}

void sl_caches_close(struct sl_caches *caches) {
    for (int i = 0; i < caches->count; i++) sl_device.give(caches->cache[i].data);
    free(caches->cache);
    *caches = (struct sl_caches){0};
}
