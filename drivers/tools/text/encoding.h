/* encoding.h - encodes a text for training or evaluation as tokens of a vocabulary. */
#ifndef SL_DRIVERS_TOOLS_TEXT_ENCODING_H
#define SL_DRIVERS_TOOLS_TEXT_ENCODING_H

#include "drivers/tools/text/documents.h"
#include "layers/formats/tokens/tokens.h"
#include "layers/formats/tokenizers/tokenizer.h"

/* Adds the tokens of DOCUMENT to LIST. KEY: key of the text in a JSON object; SPECIAL: spellings of special tokens
 * are encoded as these tokens. */
int sl_document_encode(struct sl_encoder *encoder, const struct sl_document *document, const char *key, bool special,
                       struct sl_token_list *list, struct sl_error *error);

/* For a file that is read as bytes: reports on stderr other possible kinds. LINES: lines of JSON are documents. */
void sl_text_tell_kind(const char *option, const struct sl_tokens *tokens, bool lines);
/* For a JSON Lines file that could not be opened: if its first line is the reason, sets ERROR to it. Returns ERROR's
 * status. */
int sl_text_tell_line(const char *path, struct sl_error *error);

struct sl_text_encoding {
    const struct sl_tokenizer *tokenizer;
    const char *key; /* key of the text in lines of JSON */
    bool special;    /* spellings of special tokens are encoded as these tokens */
    int32_t end;     /* token before each document; -1: none, and only one document is allowed */
};

/* Finds the token before each document: GIVEN, from --document-token, unless it is -1; otherwise the end-of-text
 * token of TOKENIZER. *END -1: none. SL_BAD_INPUT if TOKENIZER does not have GIVEN. */
int sl_text_find_end(const struct sl_tokenizer *tokenizer, int given, int32_t *end, struct sl_error *error);
/* Returns SL_BAD_INPUT: there are several documents, and no token to separate them. */
int sl_text_refuse_joined(const char *path, struct sl_error *error);

/* Encodes TOKENS, an open text, with the vocabulary, with the same result as "tokens shards": the end-of-text token
 * precedes each document. *DOCUMENTS: number of documents. VALIDATION, SEQUENCE and PATH as in sl_tokens_encode. */
int sl_text_encode(struct sl_tokens *tokens, const struct sl_text_encoding *encoding, const char *path,
                   double validation, int sequence, int64_t *documents, struct sl_error *error);

#endif
