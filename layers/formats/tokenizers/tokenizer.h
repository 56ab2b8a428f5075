/* tokenizer.h - encodes text as tokens and decodes tokens: byte pair encoding, as in published models.
 *
 * A tokenizer is read from a published model's files; the contents determine the format:
 * - tokenizer.json of Hugging Face's tokenizers, or a folder with one (or with a tokenizer.model);
 * - a GGUF file, with the tokens in its metadata;
 * - tokenizer.model of SentencePiece, if its model is BPE;
 * - ranks in tiktoken's format: lines of a token in base64 and its number. They do not define how text is divided into
 *   words, so the caller names a pattern.
 *
 * Text is bytes. Any bytes are restored by decoding: bytes that are not UTF-8 become one token each. There are two
 * exceptions: an NFC tokenizer returns normalized text; and some vocabularies lack tokens for rare bytes, and encode
 * these as the unknown token. Tokens are the same as in the original libraries, for characters of Unicode 14.
 *
 * Source: R. Sennrich, B. Haddow, A. Birch, "Neural Machine Translation of Rare Words with Subword Units" (2016); on
 * bytes, A. Radford et al., "Language Models are Unsupervised Multitask Learners" (2019). */
#ifndef SL_LAYERS_FORMATS_TOKENIZERS_TOKENIZER_H
#define SL_LAYERS_FORMATS_TOKENIZERS_TOKENIZER_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Limit on the bytes of one call of sl_encode. */
static const size_t sl_most_text = (size_t)1 << 30;

/* Constant once it is open: threads may share it. */
struct sl_tokenizer;

/* Opens PATH. PATTERN names the pattern for dividing text into words (sl_tokenizer_pattern); NULL: as in the file.
 * SL_BAD_INPUT names a missing or unsupported part of PATH. Free with sl_tokenizer_close. */
int sl_tokenizer_open(struct sl_tokenizer **tokenizer, const char *path, const char *pattern, struct sl_error *error);
void sl_tokenizer_close(struct sl_tokenizer *tokenizer);

/* Name of the I-th pattern; NULL after the last one. */
const char *sl_tokenizer_pattern(int i);

/* Limit of token numbers: all are below it. Some numbers may have no token, and so no bytes. */
int sl_tokenizer_vocabulary(const struct sl_tokenizer *tokenizer);
/* The bytes of TOKEN, *COUNT of them, without a zero at the end; NULL if TOKEN is not in the vocabulary. */
const char *sl_token_bytes(const struct sl_tokenizer *tokenizer, int32_t token, size_t *count);
/* The token with exactly these bytes, also a special one such as "<|endoftext|>". -1: there is none. */
int32_t sl_token_find(const struct sl_tokenizer *tokenizer, const char *text, size_t bytes);
/* The begin and end tokens of a text; -1: none, or not in the file. */
int32_t sl_token_begin(const struct sl_tokenizer *tokenizer);
int32_t sl_token_end(const struct sl_tokenizer *tokenizer);

/* A growing list. Zero-initialize; free with sl_token_list_free. */
struct sl_token_list {
    int32_t *token;
    size_t count, capacity;
};
/* Adds TOKEN. Returns false if memory is short. */
bool sl_token_list_add(struct sl_token_list *list, int32_t token);
void sl_token_list_free(struct sl_token_list *list);

/* One thread's state for encoding, with a cache of words. */
struct sl_encoder;
/* SL_FAILED if memory is short. The tokenizer must stay open. Free with sl_encoder_close. */
int sl_encoder_open(struct sl_encoder **encoder, const struct sl_tokenizer *tokenizer, struct sl_error *error);
void sl_encoder_close(struct sl_encoder *encoder);

/* Options of sl_encode: 0, or these. */
enum {
    SL_ENCODE_SPECIAL = 1, /* a special token's spelling is encoded as that token, as in the original libraries;
                              otherwise as ordinary text. Other added tokens are found in both cases */
    SL_ENCODE_BEHIND = 2   /* the text follows a special token */
};
/* Appends the tokens of BYTES bytes of TEXT to LIST, without begin and end tokens. SL_BAD_INPUT if TEXT is longer than
 * sl_most_text; SL_FAILED if memory is short. */
int sl_encode(struct sl_encoder *encoder, const char *text, size_t bytes, int how, struct sl_token_list *list,
              struct sl_error *error);
/* Whether encoding puts a space before TEXT, which does not begin with a special or added token. BEHIND: TEXT follows
 * one. */
bool sl_encode_prefixes(const struct sl_tokenizer *tokenizer, const char *text, size_t bytes, bool behind);

/* Decodes COUNT tokens from the beginning of a text to *TEXT, which the caller frees, and its length to *BYTES; a zero
 * follows. A space put by encoding before a text, or before a part of it, is removed. SL_BAD_INPUT names the position
 * of a number without a token. */
int sl_decode(const struct sl_tokenizer *tokenizer, const int32_t *token, size_t count, char **text, size_t *bytes,
              struct sl_error *error);

/* Writes the tokenizer as tokenizer.json, and the begin and end tokens as tokenizer_config.json, to FOLDER, in Hugging
 * Face's format. CHAT: a chat template to add; NULL: none. As here, no token is added at the beginning of a text.
 * SL_BAD_INPUT: a token is not UTF-8, or a path cannot be written; SL_FAILED: the file system fails, or memory is
 * short. */
int sl_tokenizer_publish(const struct sl_tokenizer *tokenizer, const char *folder, const char *chat,
                         struct sl_error *error);

/* Keys and values of a GGUF file, in its format. Zero-initialize; free `bytes`. */
struct sl_gguf_metadata {
    char *bytes;
    size_t count, room;
    uint64_t values; /* number of values */
    bool failed;     /* memory was short */
};
/* Whether a GGUF file can store the tokenizer: it merges bytes, in words of a pattern known to llama.cpp. */
bool sl_tokenizer_has_gguf(const struct sl_tokenizer *tokenizer);
/* Appends the tokenizer, for which sl_tokenizer_has_gguf is true, to METADATA. ROWS: rows of the model's table; numbers
 * without a token get names absent from texts. CHAT: as in sl_tokenizer_publish. SL_FAILED if memory is short. */
int sl_tokenizer_put_gguf(const struct sl_tokenizer *tokenizer, int rows, const char *chat,
                          struct sl_gguf_metadata *metadata, struct sl_error *error);

SL_END_C
#endif
