/* encoding.h - a text to train or evaluate on, as the tokens of a vocabulary. */
#ifndef SL_DRIVERS_TEXT_ENCODING_H
#define SL_DRIVERS_TEXT_ENCODING_H

#include "drivers/text/documents.h"
#include "layers/storage/tokens.h"
#include "layers/tokenizers/tokenizer.h"

/* Adds the tokens of DOCUMENT to LIST. KEY: under which an object of JSON has its text; SPECIAL: what is spelled as a
 * special token is one. */
int sl_document_encode(struct sl_encoder *encoder, const struct sl_document *document, const char *key, bool special,
                       struct sl_token_list *list, struct sl_error *error);

/* Of one file that is read as bytes: tells on stderr what it may be instead. LINES: lines of JSON are documents. */
void sl_text_tell_kind(const char *option, const struct sl_tokens *tokens, bool lines);
/* Of a file of JSON's lines that could not be opened: its first line may be the reason, and becomes ERROR. Returns
 * ERROR's status. */
int sl_text_tell_line(const char *path, struct sl_error *error);

struct sl_text_encoding {
    const struct sl_tokenizer *tokenizer;
    const char *key; /* under which lines of JSON have their texts */
    bool special;    /* what is spelled as a special token is one */
    int32_t end; /* the token that stands before each document; -1: there is none, so there may be but one document */
};

/* The token that stands before each document: GIVEN, by --document-token, unless it is -1; else the one that ends a
 * text of TOKENIZER. *END -1: there is none. SL_BAD_INPUT if TOKENIZER does not have GIVEN. */
int sl_text_find_end(const struct sl_tokenizer *tokenizer, int given, int32_t *end, struct sl_error *error);
/* SL_BAD_INPUT: there are several documents, and nothing to stand between them. */
int sl_text_refuse_joined(const char *path, struct sl_error *error);

/* Makes TOKENS, an open text, into those of the vocabulary, the same that "tokens shards" writes: the token that ends a
 * text stands before each document. *DOCUMENTS: how many there are. VALIDATION, SEQUENCE and PATH as
 * in sl_tokens_encode. */
int sl_text_encode(struct sl_tokens *tokens, const struct sl_text_encoding *encoding, const char *path,
                   double validation, int sequence, int64_t *documents, struct sl_error *error);

#endif
