/* token_format.h - the formats of files with tokens, behind one table (token_formats.c). A new format is a row there.
 *
 * A format recognizes its files by their contents. The formats are asked in the table's order, and the first that
 * recognizes one of the files is the format of them all. */
#ifndef SL_LAYERS_STORAGE_TOKEN_FORMAT_H
#define SL_LAYERS_STORAGE_TOKEN_FORMAT_H

#include "layers/storage/tokens.h"

SL_BEGIN_C

struct sl_token_format {
    const char *name;   /* of one file, for messages: "shard" */
    const char *unit;   /* what lengths in messages count: "tokens" */
    const char *suffix; /* a directory's files of other names are ignored; "": none is; NULL: no directory, one file */
    size_t width;       /* bytes of a token: 1 (uint8_t), 2 (uint16_t) or 4 (int32_t) */
    bool text;          /* of a directory, binary files are left out and packed ones unpacked */
    bool rows;          /* the file is cut into samples already; otherwise it is part of a stream */
    /* Whether FILE begins as one of this format. */
    bool (*recognize)(const struct sl_token_file *file);
    /* Checks FILE, fills in its tokens and their count, and sets TOKENS' vocabulary (of rows also the columns).
     * SEQUENCE is the length of a sample that the user wants. SL_BAD_INPUT names the file and what is wrong with it. */
    int (*open)(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error);
};

/* Of texts that were made into tokens: no file has it. */
extern const struct sl_token_format sl_encoded_text;

/* Format number I; NULL after the last, which recognizes every file. */
const struct sl_token_format *sl_token_format(int i);

/* Tokens of WIDTH bytes, 2 or 4, without a header: no file tells that it has them. */
const struct sl_token_format *sl_token_format_raw(size_t width);

/* The header of a shard of llm.c, whose COUNT tokens have WIDTH bytes: 2 or 4. */
enum { SL_SHARD_HEADER = 256 * 4 /* bytes */ };
void sl_shard_header(int32_t header[SL_SHARD_HEADER / 4], size_t width, int64_t count);

SL_END_C
#endif
