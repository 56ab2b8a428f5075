/* hash.h - checksums: 64-bit XXH3 of the library xxHash. They find damage, not malice. */
#ifndef SL_SPMD_BASE_HASH_H
#define SL_SPMD_BASE_HASH_H

#include <stdalign.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* The hash of BYTES bytes at DATA. */
uint64_t sl_hash(const void *data, size_t bytes);

/* Hashes bytes that come in parts; the result does not depend on the division. */
struct sl_hasher {
    alignas(64) unsigned char state[576];
};

void sl_hasher_begin(struct sl_hasher *hasher);
void sl_hasher_add(struct sl_hasher *hasher, const void *data, size_t bytes);
/* Adds TEXT and the zero byte that ends it. */
void sl_hasher_add_text(struct sl_hasher *hasher, const char *text);
/* The hash of all bytes added since the last call. */
uint64_t sl_hasher_end(struct sl_hasher *hasher);

/* HASH as 16 hexadecimal digits. Returns TEXT. */
enum { SL_HASH_DIGITS = 16 };
char *sl_hash_print(uint64_t hash, char text[SL_HASH_DIGITS + 1]);

SL_END_C
#endif
