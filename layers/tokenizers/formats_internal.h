/* formats_internal.h - the kinds of files that have a tokenizer, behind one table (tokenizer.c). A new one is a file
 * and a row.
 *
 * A reader fills TOKENIZER in, up to sl_vocabulary_finish, which is not its task. SL_BAD_INPUT begins with PATH. */
#ifndef SL_LAYERS_TOKENIZERS_FORMATS_INTERNAL_H
#define SL_LAYERS_TOKENIZERS_FORMATS_INTERNAL_H

#include "layers/storage/contents.h"
#include "layers/tokenizers/vocabulary_internal.h"

typedef int sl_read_tokenizer(struct sl_tokenizer *tokenizer, const struct sl_contents *contents, const char *path,
                              struct sl_error *error);

sl_read_tokenizer sl_read_tokenizer_json;  /* of Hugging Face's tokenizers */
sl_read_tokenizer sl_read_tokenizer_gguf;  /* the metadata of a model of GGML */
sl_read_tokenizer sl_read_sentencepiece;   /* a ModelProto of SentencePiece */
sl_read_tokenizer sl_read_tokenizer_ranks; /* tiktoken's; the pattern must be there */

/* Writes to BYTES what a token's TEXT stands for, where each byte is a character of its own, as GPT-2 spells them, and
 * returns how many they are; -1: TEXT has other characters, or is longer than BYTES, which have room for
 * SL_LONGEST_TOKEN. */
int sl_unspell_bytes(const char *text, size_t count, char *bytes);
/* Writes to BYTES a piece's TEXT with spaces in place of U+2581, and returns how many they are; -1: it is longer than
 * SL_LONGEST_TOKEN. */
int sl_unspell_spaces(const char *text, size_t count, char *bytes);
/* The byte that a piece such as "<0x0A>" stands for; -1: none. */
int sl_unspell_byte_piece(const char *text, size_t count);
/* The ways back: write what stands for COUNT BYTES to TEXT, which has room for 3 bytes each, or for 6; return how many
 * they are. */
size_t sl_spell_bytes(const char *bytes, size_t count, char *text);
size_t sl_spell_spaces(const char *bytes, size_t count, char *text);
size_t sl_spell_byte_piece(int byte, char text[6]);
/* The rank of a score: pieces of the greatest score merge first. */
uint32_t sl_rank_of_score(float score);
/* "LEFT RIGHT", RANK-th of a list of merges, as tokens' texts are spelled. */
int sl_add_spelled_merge(struct sl_tokenizer *tokenizer, const char *left, size_t left_count, const char *right,
                         size_t right_count, uint32_t rank, const char *path, struct sl_error *error);

#endif
