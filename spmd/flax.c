/* flax.c - flax's random streams. */
#include "spmd/flax.h"

#include <sha1.h>
#include <string.h>

uint32_t sl_flax_path(const char *const *names, uint32_t n) {
    SHA1_CTX sha1;
    SHA1Init(&sha1);
    for (; *names; names++) SHA1Update(&sha1, (const uint8_t *)*names, strlen(*names));
    const uint8_t bytes[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    size_t leading = 0;
    while (leading < sizeof bytes && bytes[leading] == 0) leading++;
    SHA1Update(&sha1, bytes + leading, sizeof bytes - leading);
    uint8_t digest[SHA1_DIGEST_LENGTH];
    SHA1Final(digest, &sha1);
    return (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 | (uint32_t)digest[2] << 8 | digest[3];
}

struct sl_key sl_flax_fold(struct sl_key key, const char *const *names, uint32_t n) {
    return sl_fold_in(key, sl_flax_path(names, n));
}
