/* chat_text.h - messages as a model's template writes them, in tokens. */
#ifndef SL_DRIVERS_TEXT_CHAT_TEXT_H
#define SL_DRIVERS_TEXT_CHAT_TEXT_H

#include "layers/tokenizers/tokenizer.h"

/* How messages are written:
 *     ChatML     <|im_start|>ROLE newline CONTENT<|im_end|> newline
 *     Llama 3    <|begin_of_text|>, then each: <|start_header_id|>ROLE<|end_header_id|> two newlines CONTENT<|eot_id|>,
 *                of whose CONTENT white space at both ends is left out
 * SL_CHAT_BY_TOKENIZER: the one whose special tokens the tokenizer has; ChatML where tokens are bytes. */
enum sl_chat_template { SL_CHAT_BY_TOKENIZER, SL_CHAT_CHATML, SL_CHAT_LLAMA3 };

struct sl_chat_spelling;

/* Everybody may read the fields, and take tokens away from both lists. */
struct sl_chat_writer {
    const struct sl_tokenizer *tokenizer; /* NULL: a token is a byte */
    enum sl_chat_template template;
    const struct sl_chat_spelling *spelling;
    struct sl_encoder *encoder; /* NULL: a token is a byte */
    /* What has been written; and for each token 1 where it is scored, else 0. */
    struct sl_token_list tokens, answers;
    char *joined; /* [room]: what stands between two special tokens */
    size_t room;
};

/* "ChatML", "Llama 3" */
extern const char *const sl_chat_template_names[];

/* Whether TOKENIZER has the special tokens of a template. */
bool sl_chat_has_template(const struct sl_tokenizer *tokenizer);

/* TOKENIZER must stay open; NULL: a token is a byte. SL_BAD_INPUT: it lacks a token of the template, or has those of
 * none. Free with sl_chat_writer_close, also after a failure. */
int sl_chat_writer_open(struct sl_chat_writer *writer, const struct sl_tokenizer *tokenizer,
                        enum sl_chat_template template, struct sl_error *error);
void sl_chat_writer_close(struct sl_chat_writer *writer);

/* Forgets what was written, and writes what comes before all messages. SL_FAILED, here and below, without memory. */
int sl_chat_begin(struct sl_chat_writer *writer, struct sl_error *error);
/* Adds a message. CONTENT [bytes] is text, whatever it spells. SCORED: the content is, and the token that ends it. */
int sl_chat_add(struct sl_chat_writer *writer, const char *role, size_t role_bytes, const char *content, size_t bytes,
                bool scored, struct sl_error *error);
/* Adds what comes before a message's content. */
int sl_chat_begin_message(struct sl_chat_writer *writer, const char *role, struct sl_error *error);
/* Adds what comes behind it. ENDED: but the token that ends it, which is there. */
int sl_chat_end_message(struct sl_chat_writer *writer, bool ended, struct sl_error *error);
/* How the token that ends a message is spelled. */
const char *sl_chat_end(const struct sl_chat_writer *writer);

#endif
