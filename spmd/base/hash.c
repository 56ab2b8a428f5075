/* hash.c - checksums by xxHash. */
#include "spmd/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state's size */
#include <xxhash.h>
#include SL_XXHASH /* xxh_x86dispatch.h, or xxhash.h again */

uint64_t sl_hash(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

/* A hasher is the library's state. */
_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct sl_hasher), "the state fits");
static XXH3_state_t *state_of(struct sl_hasher *hasher) { return (XXH3_state_t *)hasher; }

void sl_hasher_begin(struct sl_hasher *hasher) {
    *hasher = (struct sl_hasher){0};
    XXH3_64bits_reset(state_of(hasher));
}

void sl_hasher_add(struct sl_hasher *hasher, const void *data, size_t bytes) {
    XXH3_64bits_update(state_of(hasher), data, bytes);
}

void sl_hasher_add_text(struct sl_hasher *hasher, const char *text) { sl_hasher_add(hasher, text, strlen(text) + 1); }

uint64_t sl_hasher_end(struct sl_hasher *hasher) {
    const uint64_t hash = XXH3_64bits_digest(state_of(hasher));
    XXH3_64bits_reset(state_of(hasher));
    return hash;
}

char *sl_hash_print(uint64_t hash, char text[SL_HASH_DIGITS + 1]) {
    snprintf(text, SL_HASH_DIGITS + 1, "%016" PRIx64, hash);
    return text;
}
