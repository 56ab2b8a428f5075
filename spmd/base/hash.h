/* hash.h - checksums: XXH3 with 64 bits, of the library xxHash. They find damage, not malice. */
#ifndef SL_SPMD_BASE_HASH_H
#define SL_SPMD_BASE_HASH_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Of BYTES bytes at DATA. */
uint64_t sl_hash(const void *data, size_t bytes);

/* Of bytes that come part by part: the same number, however they are divided. */
struct sl_hasher;

/* NULL without memory. */
struct sl_hasher *sl_hasher_new(void);
void sl_hasher_add(struct sl_hasher *hasher, const void *data, size_t bytes);
/* Adds TEXT and the zero byte that ends it. */
void sl_hasher_add_text(struct sl_hasher *hasher, const char *text);
/* Of all that was added since the last call. */
uint64_t sl_hasher_end(struct sl_hasher *hasher);
void sl_hasher_free(struct sl_hasher *hasher);

/* HASH as 16 hexadecimal digits. Returns TEXT. */
enum { SL_HASH_DIGITS = 16 };
char *sl_hash_print(uint64_t hash, char text[SL_HASH_DIGITS + 1]);

SL_END_C
#endif
