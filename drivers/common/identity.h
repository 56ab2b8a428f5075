/* identity.h - the identity of a run, for its signature (spmd/signature.h): options, files, data.
 *
 * Contents are identified by their size and a hash (XXH3), of all bytes up to 4 MiB. For larger contents the hash
 * covers 64 blocks of 64 KiB, evenly spaced from the first bytes to the last, so a run starts as fast on large data.
 * docs/engines.md says so, too. */
#ifndef SL_DRIVERS_COMMON_IDENTITY_H
#define SL_DRIVERS_COMMON_IDENTITY_H

#include "drivers/common/options.h"
#include "layers/formats/tokens/tokens.h"

/* Adds every option of SECTION: its name on the command line, and its value, which may be the default. SL_FAILED
 * without memory. */
int sl_options_sign(struct sl_signature *signature, const struct sl_option_section *section, struct sl_error *error);

/* One of several pieces of memory, hashed as if they were contiguous. */
struct sl_piece {
    const void *data;
    size_t bytes;
};
/* Adds KEY with DESCRIPTION, which may be "", and the size and hash of the PIECES. */
int sl_sign_contents(struct sl_signature *signature, const char *key, const char *description,
                     const struct sl_piece *piece, int pieces, struct sl_error *error);
/* Adds the contents of a file as "contents of KEY". If PATH is NULL, adds nothing. */
int sl_sign_file(struct sl_signature *signature, const char *key, const char *path, struct sl_error *error);
/* Adds KEY: kind and number of the tokens, the vocabulary, and the contents of their files. Adds nothing if no
 * tokens are open. */
int sl_sign_tokens(struct sl_signature *signature, const char *key, const struct sl_tokens *tokens,
                   struct sl_error *error);

#endif
