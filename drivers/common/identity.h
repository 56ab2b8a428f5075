/* identity.h - what a run is made of, as its signature (spmd/signature.h) tells it: options, files, data.
 *
 * Contents are told by their size and a hash (XXH3), of all bytes up to 4 MiB. Of more, the hash is over 64 blocks of
 * 64 KiB, evenly spaced from the first bytes to the last: a run starts as fast on large data. docs/engines.md says so,
 * too. */
#ifndef SL_DRIVERS_COMMON_IDENTITY_H
#define SL_DRIVERS_COMMON_IDENTITY_H

#include "drivers/common/options.h"
#include "layers/storage/tokens.h"

enum { SL_OPTION_TEXT_SIZE = 200 };

/* Returns the value at TARGET, in TEXT or where it lies: one that has none is "none", "nan" or empty. */
const char *sl_option_print(const struct sl_option *option, const void *target, char text[SL_OPTION_TEXT_SIZE]);

/* Adds every option of SECTION: its name as on the command line, and its value, which may be the default. SL_FAILED
 * without memory. */
int sl_options_sign(struct sl_signature *signature, const struct sl_option_section *section, struct sl_error *error);

/* Several pieces of memory, as if they lay one after the other. */
struct sl_piece {
    const void *data;
    size_t bytes;
};
/* Adds KEY with DESCRIPTION, which may be "", and the size and hash of the PIECES. */
int sl_sign_contents(struct sl_signature *signature, const char *key, const char *description,
                     const struct sl_piece *piece, int pieces, struct sl_error *error);
/* Adds "contents of KEY", a file's. PATH may be NULL: then there is nothing to add. */
int sl_sign_file(struct sl_signature *signature, const char *key, const char *path, struct sl_error *error);
/* Adds KEY: of what kind the tokens are, how many there are, the vocabulary, and the contents of their files. Nothing
 * where none are open. */
int sl_sign_tokens(struct sl_signature *signature, const char *key, const struct sl_tokens *tokens,
                   struct sl_error *error);

#endif
