/* identity.c - hashes the contents of options and files. */
#include "drivers/common/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "drivers/common/option_values.h"
#include "layers/formats/tokens/token_format.h"
#include "spmd/base/file.h"
#include "spmd/base/hash.h"

enum { BLOCK = 1 << 16, BLOCKS = 64, TEXT = SL_OPTION_TEXT_SIZE };

static int refuse(struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "no memory for the run's signature");
}

static int add(struct sl_signature *signature, const char *key, const char *text, struct sl_error *error) {
    return sl_signature_add(signature, key, text) ? SL_OK : refuse(error);
}

/* ---- options ---- */

int sl_options_sign(struct sl_signature *signature, const struct sl_option_section *section, struct sl_error *error) {
    char key[TEXT], text[TEXT];
    for (; section->table; section++) {
        for (const struct sl_option *option = section->table; option->name; option++) {
            snprintf(key, sizeof key, "--%s", option->name);
            SL_TRY(add(signature, key, sl_option_print(option, (const char *)section->target + option->target, text),
                       error));
        }
    }
    return SL_OK;
}

/* ---- contents ---- */

/* Adds COUNT bytes of the pieces, from byte FIRST on, to the hash. */
static void add_range(struct sl_hasher *hasher, const struct sl_piece *piece, int pieces, size_t first, size_t count) {
    for (int i = 0; i < pieces && count; i++) {
        if (first >= piece[i].bytes) {
            first -= piece[i].bytes;
            continue;
        }
        const size_t here = piece[i].bytes - first < count ? piece[i].bytes - first : count;
        sl_hasher_add(hasher, (const char *)piece[i].data + first, here);
        count -= here;
        first = 0;
    }
}

int sl_sign_contents(struct sl_signature *signature, const char *key, const char *description,
                     const struct sl_piece *piece, int pieces, struct sl_error *error) {
    char text[TEXT + 80], digits[SL_HASH_DIGITS + 1];
    struct sl_hasher hasher;
    size_t total = 0;
    sl_hasher_begin(&hasher);
    for (int i = 0; i < pieces; i++) total += piece[i].bytes;
    if (total <= (size_t)BLOCK * BLOCKS) {
        add_range(&hasher, piece, pieces, 0, total);
    } else {
        const size_t step = (total - BLOCK) / (BLOCKS - 1);
        for (size_t block = 0; block + 1 < BLOCKS; block++) add_range(&hasher, piece, pieces, step * block, BLOCK);
        add_range(&hasher, piece, pieces, total - BLOCK, BLOCK);
    }
    snprintf(text, sizeof text, "%.*s%s%zu bytes, XXH3 %s", TEXT, description, *description ? ", " : "", total,
             sl_hash_print(sl_hasher_end(&hasher), digits));
    return add(signature, key, text, error);
}

static int sign_mapped(struct sl_signature *signature, const char *key, int file, size_t bytes,
                       struct sl_error *error) {
    struct sl_piece piece = {NULL, bytes};
    if (bytes) piece.data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (piece.data == MAP_FAILED) return sl_error_set(error, SL_FAILED, "%s: %s", key, strerror(errno));
    const int status = sl_sign_contents(signature, key, "", &piece, 1, error);
    if (piece.data) munmap((void *)piece.data, bytes);
    return status;
}

int sl_sign_file(struct sl_signature *signature, const char *key, const char *path, struct sl_error *error) {
    char name[TEXT];
    const char *reason;
    struct stat about;
    if (!path) return SL_OK;
    snprintf(name, sizeof name, "contents of %s", key);
    if (!stat(path, &about) && !S_ISREG(about.st_mode)) return add(signature, name, "not of a regular file", error);
    FILE *file = sl_file_read(path, SL_FILE_REGULAR, &reason);
    if (!file) return sl_error_set(error, SL_BAD_INPUT, "%s %.300s: cannot be read: %s", key, path, reason);
    if (fstat(fileno(file), &about))
        sl_error_set(error, SL_FAILED, "%s %.300s: cannot be read: %s", key, path, strerror(errno));
    else
        sign_mapped(signature, name, fileno(file), (size_t)about.st_size, error);
    fclose(file);
    return error->status;
}

int sl_sign_tokens(struct sl_signature *signature, const char *key, const struct sl_tokens *tokens,
                   struct sl_error *error) {
    char about[TEXT];
    if (!tokens->files) return SL_OK;
    struct sl_piece *piece = malloc(((size_t)tokens->files + 1) * sizeof *piece);
    int pieces = 0;
    if (!piece) return refuse(error);
    for (int i = 0; i < tokens->files; i++)
        if (tokens->file[i].contents.count)
            piece[pieces++] = (struct sl_piece){tokens->file[i].contents.bytes, tokens->file[i].contents.count};
    snprintf(about, sizeof about, "%s, %" PRId64 " tokens, vocabulary %d", tokens->format->name, tokens->count,
             tokens->vocabulary);
    const int status = sl_sign_contents(signature, key, about, piece, pieces, error);
    free(piece);
    return status;
}
