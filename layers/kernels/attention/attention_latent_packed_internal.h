/* attention_latent_packed_internal.h - for CPUs: scores of cached latents with several elements of a row in one vector,
 * and prefetches of rows. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_PACKED_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_PACKED_INTERNAL_H

#include "layers/kernels/loops/lanes_internal.h"
#include "layers/kernels/attention/tiles_internal.h"

enum { ABREAST = 8, MOST_PACK = 4 };

typedef int64_t longs __attribute__((vector_size(4 * LANES)));

/* Returns a vector that repeats PACK elements of X. */
SL_INLINE vector spread_pack(const float *x, const size_t pack) {
    if (pack == 2) {
        int64_t pair;
        __builtin_memcpy(&pair, x, sizeof pair);
        return (vector)(pair - (longs){0});
    }
    return load_fours(x, 0);
}

/* q [depth / pack, LANES], rows [count, depth], p [ABREAST, LANES]. After COUNT rows the last row is repeated. */
SL_INLINE void score_packed(const float *q, const size_t depth, const float *rows, const size_t count,
                            const size_t pack, float *p) {
    const float *row[ABREAST];
    vector sum[ABREAST];
    for (size_t i = 0; i < ABREAST; i++) {
        row[i] = rows + smaller(i, count - 1) * depth;
        sum[i] = (vector){0};
    }
    for (size_t c = 0; c < depth; c += pack, q += LANES) {
        const vector w = load(q);
        for (size_t i = 0; i < ABREAST; i++) sum[i] += spread_pack(row[i] + c, pack) * w;
    }
    for (size_t i = 0; i < ABREAST; i++) {
        sum[i] += __builtin_shufflevector(sum[i], sum[i], SL_QUARTERS(1, 0, 3, 2));
        if (pack == 4) sum[i] += __builtin_shufflevector(sum[i], sum[i], SL_QUARTERS(2, 3, 0, 1));
        store(p + i * LANES, sum[i]);
    }
}

/* Prefetches BYTES into the first-level cache. */
SL_INLINE void fetch(const char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += SL_CACHE_LINE) __builtin_prefetch(from + i);
}

#endif
