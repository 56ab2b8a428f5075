/* attention_sight_internal.h - which keys the queries of a block see, strip by strip. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_SIGHT_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_SIGHT_INTERNAL_H

#include "layers/kernels/tiles_internal.h"

/* Queries, or keys, in a strip. */
#if defined(SL_DEVICE_CUDA)
enum { STRIP = 32 };
#else
enum { STRIP = 16 };
#endif

/* A block of queries and one of keys. Query i sees key j if j + ahead <= i. */
struct sight {
    size_t queries, keys;
    int64_t ahead;
};

/* COUNT rows of a block from FIRST on, and those of the other block that one of them sees, or is seen by: [from, end).
 */
struct strip {
    size_t first, count, from, end;
};

SL_INLINE size_t clamp(int64_t x, size_t most) { return x < 0 ? 0 : smaller((size_t)x, most); }

SL_INLINE bool all_see_all(const struct sight *s) { return (int64_t)s->keys - 1 + s->ahead <= 0; }

SL_INLINE struct strip strip_of_queries(const struct sight *s, size_t first) {
    const size_t count = smaller(all_see_all(s) ? s->queries : STRIP, s->queries - first);
    return (struct strip){first, count, 0, clamp((int64_t)(first + count) - s->ahead, s->keys)};
}

SL_INLINE struct strip strip_of_keys(const struct sight *s, size_t first) {
    const size_t count = smaller(all_see_all(s) ? s->keys : STRIP, s->keys - first);
    return (struct strip){first, count, clamp((int64_t)first + s->ahead, s->queries), s->queries};
}

#endif
