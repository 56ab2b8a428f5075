/* token_format.h - the formats of token files, in one table (token_formats.c). To add a format, add a row there.
 *
 * A format recognizes its files by their contents. Formats are tried in the table's order; the first that recognizes
 * one of the files is the format of all of them. */
#ifndef SL_LAYERS_FORMATS_TOKENS_TOKEN_FORMAT_H
#define SL_LAYERS_FORMATS_TOKENS_TOKEN_FORMAT_H

#include "layers/formats/tokens/tokens.h"

SL_BEGIN_C

struct sl_token_format {
    const char *name;   /* of one file, for messages: "shard" */
    const char *unit;   /* unit of lengths in messages: "tokens" */
    const char *suffix; /* suffix of a directory's files, others are ignored; "": all are read; NULL: one file only, no
                           directory */
    size_t width;       /* bytes of a token: 1 (uint8_t), 2 (uint16_t) or 4 (int32_t) */
    bool text;          /* in a directory, skip binary files and unpack packed ones */
    bool rows;          /* whether the file is divided into samples; if not, it is part of a stream */
    /* Whether FILE begins like one of this format. */
    bool (*recognize)(const struct sl_token_file *file);
    /* Checks FILE, sets its tokens and their count, and sets TOKENS' vocabulary (for rows also the columns). SEQUENCE
     * is the wanted length of a sample. SL_BAD_INPUT names the file and the error. */
    int (*open)(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error);
};

/* Format of texts encoded as tokens; no file has it. */
extern const struct sl_token_format sl_encoded_text;

/* Format number I; NULL after the last, which recognizes every file. */
const struct sl_token_format *sl_token_format(int i);

/* Tokens of WIDTH bytes, 2 or 4, without a header, so files of this format cannot be recognized. */
const struct sl_token_format *sl_token_format_raw(size_t width);

/* Writes the header of an llm.c shard with COUNT tokens of WIDTH bytes, 2 or 4. */
enum { SL_SHARD_HEADER = 256 * 4 /* bytes */ };
void sl_shard_header(int32_t header[SL_SHARD_HEADER / 4], size_t width, int64_t count);

SL_END_C
#endif
