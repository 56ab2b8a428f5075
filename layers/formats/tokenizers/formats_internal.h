/* formats_internal.h - formats of tokenizer files, in one table (tokenizer.c). To add a format, add a file and a row.
 *
 * A reader fills in TOKENIZER, but does not call sl_vocabulary_finish. Errors of SL_BAD_INPUT begin with PATH. */
#ifndef SL_LAYERS_FORMATS_TOKENIZERS_FORMATS_INTERNAL_H
#define SL_LAYERS_FORMATS_TOKENIZERS_FORMATS_INTERNAL_H

#include "layers/formats/files/contents.h"
#include "layers/formats/tokenizers/vocabulary_internal.h"

typedef int sl_read_tokenizer(struct sl_tokenizer *tokenizer, const struct sl_contents *contents, const char *path,
                              struct sl_error *error);

sl_read_tokenizer sl_read_tokenizer_json;  /* of Hugging Face's tokenizers */
sl_read_tokenizer sl_read_tokenizer_gguf;  /* the metadata of a GGUF model */
sl_read_tokenizer sl_read_sentencepiece;   /* a ModelProto of SentencePiece */
sl_read_tokenizer sl_read_tokenizer_ranks; /* tiktoken's; the pattern must be set */

/* Decodes a token's TEXT in GPT-2's spelling, one character per byte, to BYTES, which have room for SL_LONGEST_TOKEN,
 * and returns their number; -1: TEXT has other characters, or is too long. */
int sl_unspell_bytes(const char *text, size_t count, char *bytes);
/* Writes a piece's TEXT to BYTES, with spaces in place of U+2581, and returns their number; -1: it is longer than
 * SL_LONGEST_TOKEN. */
int sl_unspell_spaces(const char *text, size_t count, char *bytes);
/* The byte of a piece such as "<0x0A>"; -1: none. */
int sl_unspell_byte_piece(const char *text, size_t count);
/* The reverse: write the spelling of COUNT BYTES to TEXT, which has room for 3 bytes each, or for 6, and return its
 * length. */
size_t sl_spell_bytes(const char *bytes, size_t count, char *text);
size_t sl_spell_spaces(const char *bytes, size_t count, char *text);
size_t sl_spell_byte_piece(int byte, char text[6]);
/* Rank of a score: pieces with the greatest score merge first. */
uint32_t sl_rank_of_score(float score);
/* Adds the merge "LEFT RIGHT", RANK-th of a list, in the spelling of the tokens' texts. */
int sl_add_spelled_merge(struct sl_tokenizer *tokenizer, const char *left, size_t left_count, const char *right,
                         size_t right_count, uint32_t rank, const char *path, struct sl_error *error);

#endif
