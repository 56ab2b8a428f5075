/* hashes_internal.h - hashes by places of arrays on a device (layers/kernels/kernels.h); kernels.c includes it. The
 * host hashes its own memory faster (spmd/base/places.h). */
#ifndef SL_LAYERS_KERNELS_HASHES_INTERNAL_H
#define SL_LAYERS_KERNELS_HASHES_INTERNAL_H

#include "layers/kernels/kernels.h"
#include "layers/kernels/loops/fours_internal.h"
#include "spmd/base/places.h"
#include "spmd/device/offload.h"

enum {
    HASHED = 2 * SL_FOUR,     /* fewest elements of a thread, unless the array is smaller */
    HASHERS = 1024 * SL_TEAMS /* most threads: each adds to memory once, and waits there for others */
};

#if SL_FOUR > 1
typedef uint32_t few_words __attribute__((vector_size(4 * SL_FOUR), may_alias));
#else
typedef uint32_t few_words __attribute__((may_alias));
#endif

/* Loads the words of COUNT elements of X from I on: SL_FOUR aligned elements, or 1. */
SL_INLINE few_words load_words(const size_t count, const void *x, const bool half, size_t i) {
    few_words words = {0};
    if (half) {
        const few_halves halves = load_halves(count, (const uint16_t *)x + i);
        for (size_t k = 0; k < count; k++) OF(words, k) = (uint32_t)OF(halves, k) << 16;
        return words;
    }
    if (count == SL_FOUR) return *(const few_words *)(const void *)((const float *)x + i);
    OF(words, 0) = sl_bits_of_float(((const float *)x)[i]);
    return words;
}

/* Hashes words with consecutive keys. */
SL_INLINE uint64_t hash_words(const size_t count, const void *x, const bool half, size_t i, const uint32_t *keys,
                              uint64_t place) {
    const few_words words = load_words(count, x, half, i);
    const uint32_t *own = keys + place % SL_PLACES;
    few_words key = {0};
    uint64_t sum = 0;
    if (count == SL_FOUR)
        key = *(const few_words *)(const void *)own;
    else
        OF(key, 0) = *own;
    for (size_t k = 0; k < count; k++) sum += (uint64_t)OF(key, k) * OF(words, k);
    return sl_places_high(place) * sum;
}

/* Returns the place of element E, counted from the start of the first row; *LEFT = elements of its run from E on. */
SL_INLINE uint64_t place_of(uint32_t e, uint64_t first, uint64_t step, uint64_t stride, uint32_t run, uint32_t group,
                            uint32_t *left) {
    const uint32_t number = e / run, in_run = e - number * run, row = number / group, in_row = number - row * group;
    *left = run - in_run;
    return first + row * stride + in_row * step + in_run;
}

static void add_hash(size_t n, const void *x, bool half, const struct sl_hash_places *places, const uint32_t *keys,
                     uint64_t *sums) {
    const uint64_t first = places->first, step = places->step, stride = places->stride;
    const uint32_t run = places->run, group = places->group, skipped = places->skipped;
    const size_t wanted = (n + HASHED - 1) / HASHED, threads = wanted < HASHERS ? wanted : HASHERS;
    SL_BLOCKS(is_device_ptr(x, keys, sums))
    for (size_t t = 0; t < threads; t++) {
        uint64_t sum = 0;
        for (size_t i = t * SL_FOUR; i < n; i += threads * SL_FOUR) {
            uint32_t left;
            const uint64_t place = place_of((uint32_t)i + skipped, first, step, stride, run, group, &left);
            const uintptr_t at = half ? HALVES_AT((const uint16_t *)x + i) : FLOATS_AT((const float *)x + i);
            if (n - i >= SL_FOUR && left >= SL_FOUR && (4 * place | at) % (4 * SL_FOUR) == 0) {
                sum += hash_words(SL_FOUR, x, half, i, keys, place);
                continue;
            }
            for (size_t each = i; each < n && each < i + SL_FOUR; each++)
                sum += hash_words(1, x, half, each, keys,
                                  place_of((uint32_t)each + skipped, first, step, stride, run, group, &left));
        }
        SL_ATOMIC()
        sums[t % SL_HASH_SUMS] += sum;
    }
}

static void add_up_hashes(size_t count, const uint64_t *sums, uint64_t *hashes) {
    SL_ROWS(is_device_ptr(sums, hashes))
    for (size_t h = 0; h < count; h++) {
        uint64_t hash = 0;
        SL_ADDS(reduction(+ : hash))
        for (size_t s = 0; s < SL_HASH_SUMS; s++) hash += sums[h * SL_HASH_SUMS + s];
        hashes[h] = hash;
    }
}

#endif
