/* chat_text.h - writes chat messages as tokens, by a model's template. */
#ifndef SL_DRIVERS_TOOLS_TEXT_CHAT_TEXT_H
#define SL_DRIVERS_TOOLS_TEXT_CHAT_TEXT_H

#include "layers/formats/tokenizers/tokenizer.h"

/* Formats of messages:
 *     ChatML     <|im_start|>ROLE newline CONTENT<|im_end|> newline
 *     Llama 3    <|begin_of_text|>, then each: <|start_header_id|>ROLE<|end_header_id|> two newlines CONTENT<|eot_id|>,
 *                without white space at both ends of CONTENT
 * SL_CHAT_BY_TOKENIZER: the template with special tokens in the tokenizer; ChatML if tokens are bytes. */
enum sl_chat_template { SL_CHAT_BY_TOKENIZER, SL_CHAT_CHATML, SL_CHAT_LLAMA3 };

struct sl_chat_spelling;

/* The fields may be read, and tokens removed from both lists, by the caller. */
struct sl_chat_writer {
    const struct sl_tokenizer *tokenizer; /* NULL: a token is a byte */
    enum sl_chat_template template;
    const struct sl_chat_spelling *spelling;
    struct sl_encoder *encoder; /* NULL: a token is a byte */
    /* Tokens written so far; and for each token 1 if it is scored, else 0. */
    struct sl_token_list tokens, answers;
    char *joined; /* [room]: text between two special tokens */
    size_t room;
};

/* "ChatML", "Llama 3" */
extern const char *const sl_chat_template_names[];

/* Whether TOKENIZER has the special tokens of any template. */
bool sl_chat_has_template(const struct sl_tokenizer *tokenizer);

/* Opens a writer. TOKENIZER must stay open; NULL: a token is a byte. SL_BAD_INPUT if the tokenizer lacks a token of
 * the template, or has the tokens of no template. Free with sl_chat_writer_close, also after a failure. */
int sl_chat_writer_open(struct sl_chat_writer *writer, const struct sl_tokenizer *tokenizer,
                        enum sl_chat_template template, struct sl_error *error);
void sl_chat_writer_close(struct sl_chat_writer *writer);

/* Clears the lists, and writes the tokens before all messages. This and the functions below return SL_FAILED without
 * memory. */
int sl_chat_begin(struct sl_chat_writer *writer, struct sl_error *error);
/* Adds a message. CONTENT [bytes] is encoded as text, even if it spells a special token. SCORED: the content and the
 * token that ends it are scored. */
int sl_chat_add(struct sl_chat_writer *writer, const char *role, size_t role_bytes, const char *content, size_t bytes,
                bool scored, struct sl_error *error);
/* Adds the tokens before a message's content. */
int sl_chat_begin_message(struct sl_chat_writer *writer, const char *role, struct sl_error *error);
/* Adds the tokens after a message's content. ENDED: the token that ends the content is already there. */
int sl_chat_end_message(struct sl_chat_writer *writer, bool ended, struct sl_error *error);
/* Returns the spelling of the token that ends a message. */
const char *sl_chat_end(const struct sl_chat_writer *writer);

#endif
