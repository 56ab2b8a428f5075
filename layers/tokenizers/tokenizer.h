/* tokenizer.h - text as tokens, and back: byte pair encoding, as published models use it.
 *
 * A tokenizer is read from what a model is published with; the contents of the file tell what it is:
 *  - tokenizer.json of Hugging Face's tokenizers, or a folder that has one (or a tokenizer.model);
 *  - a GGUF file, whose metadata have the tokens;
 *  - tokenizer.model of SentencePiece, where its model is BPE;
 *  - ranks as tiktoken has them: a token in base64 and its number, a line each. They do not say how text is divided
 * into words, so the caller says it.
 *
 * Text is bytes. Whatever they are, decoding gives them back: what is no UTF-8 becomes a token a byte. But of a
 * tokenizer that normalizes to NFC, text comes back normalized; and some vocabularies lack tokens of bytes that texts
 * hardly have, for which their token for what is unknown stands. Tokens are those of the libraries that the files come
 * from, for characters that Unicode 14 knows.
 *
 * Source: R. Sennrich, B. Haddow, A. Birch, "Neural Machine Translation of Rare Words with Subword Units" (2016); on
 * bytes, A. Radford et al., "Language Models are Unsupervised Multitask Learners" (2019). */
#ifndef SL_LAYERS_TOKENIZERS_TOKENIZER_H
#define SL_LAYERS_TOKENIZERS_TOKENIZER_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Bytes that one call of sl_encode takes at most. */
static const size_t sl_most_text = (size_t)1 << 30;

/* Never changes once it is open: threads may share it. */
struct sl_tokenizer;

/* Opens PATH. PATTERN names how text is divided into words (sl_tokenizer_pattern); NULL: as the file says. SL_BAD_INPUT
 * says what PATH lacks, or what of it is not supported. Free with sl_tokenizer_close. */
int sl_tokenizer_open(struct sl_tokenizer **tokenizer, const char *path, const char *pattern, struct sl_error *error);
void sl_tokenizer_close(struct sl_tokenizer *tokenizer);

/* The I-th pattern's name; NULL after the last one. */
const char *sl_tokenizer_pattern(int i);

/* Tokens are numbers below this one. Some numbers may have no token: they have no bytes. */
int sl_tokenizer_vocabulary(const struct sl_tokenizer *tokenizer);
/* The bytes of TOKEN, *COUNT of them, without a zero at the end; NULL where TOKEN is no token of the vocabulary. */
const char *sl_token_bytes(const struct sl_tokenizer *tokenizer, int32_t token, size_t *count);
/* The token that a text is, as a whole; such as "<|endoftext|>", a special one, too. -1: there is none. */
int32_t sl_token_find(const struct sl_tokenizer *tokenizer, const char *text, size_t bytes);
/* The tokens that begin and end a text; -1: none, or the file does not say. */
int32_t sl_token_begin(const struct sl_tokenizer *tokenizer);
int32_t sl_token_end(const struct sl_tokenizer *tokenizer);

/* A list that grows. Zero-initialize; free with sl_token_list_free. */
struct sl_token_list {
    int32_t *token;
    size_t count, capacity;
};
/* Adds TOKEN. False without memory. */
bool sl_token_list_add(struct sl_token_list *list, int32_t token);
void sl_token_list_free(struct sl_token_list *list);

/* What one thread needs to encode, and what it remembers of the words that it has seen. */
struct sl_encoder;
/* SL_FAILED without memory. The tokenizer must stay open. Free with sl_encoder_close. */
int sl_encoder_open(struct sl_encoder **encoder, const struct sl_tokenizer *tokenizer, struct sl_error *error);
void sl_encoder_close(struct sl_encoder *encoder);

/* How a text is encoded: 0, or these. */
enum {
    SL_ENCODE_SPECIAL =
        1,               /* a special token's spelling is that token, as in the reference libraries; otherwise the text
                            is literal: it is text like other text. Added tokens that are not special are found in both */
    SL_ENCODE_BEHIND = 2 /* the text goes on behind a special token */
};
/* Adds the tokens of BYTES bytes of TEXT to LIST. Neither a token that begins a text nor one that ends it is added.
 * SL_BAD_INPUT where TEXT is longer than sl_most_text; SL_FAILED without memory. */
int sl_encode(struct sl_encoder *encoder, const char *text, size_t bytes, int how, struct sl_token_list *list,
              struct sl_error *error);
/* Whether a space is put before TEXT, which begins with no special or added token. BEHIND: it goes on behind one. */
bool sl_encode_prefixes(const struct sl_tokenizer *tokenizer, const char *text, size_t bytes, bool behind);

/* Writes the bytes of COUNT tokens, which begin a text, to *TEXT, which is the caller's to free, and their number to
 * *BYTES; a zero follows them. A space that encoding puts before a text, or before a part of it, is taken away.
 * SL_BAD_INPUT names the position of a number that is no token. */
int sl_decode(const struct sl_tokenizer *tokenizer, const int32_t *token, size_t count, char **text, size_t *bytes,
              struct sl_error *error);

/* Writes the tokenizer as tokenizer.json, and the tokens that begin and end a text as tokenizer_config.json, into
 * FOLDER, as Hugging Face's libraries open them; CHAT: the template of a chat, which goes with them; NULL: none. There,
 * too, no token that begins a text is added. SL_BAD_INPUT: a token is no UTF-8, or a path cannot be written; SL_FAILED:
 * the file system fails, or there is no memory. */
int sl_tokenizer_publish(const struct sl_tokenizer *tokenizer, const char *folder, const char *chat,
                         struct sl_error *error);

/* Keys and values of a GGUF file, as they lie in it. Zero-initialize; free `bytes`. */
struct sl_gguf_metadata {
    char *bytes;
    size_t count, room;
    uint64_t values; /* how many there are */
    bool failed;     /* there was no memory */
};
/* Whether a GGUF file can have the tokenizer: bytes merge, in words of a pattern that llama.cpp knows. */
bool sl_tokenizer_has_gguf(const struct sl_tokenizer *tokenizer);
/* Appends the tokenizer, which sl_tokenizer_has_gguf, to METADATA. ROWS: of the model's table; numbers without a token
 * get names that no text has. CHAT: as in sl_tokenizer_publish. SL_FAILED without memory. */
int sl_tokenizer_put_gguf(const struct sl_tokenizer *tokenizer, int rows, const char *chat,
                          struct sl_gguf_metadata *metadata, struct sl_error *error);

SL_END_C
#endif
