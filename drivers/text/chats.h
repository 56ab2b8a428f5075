/* chats.h - conversations to learn answers from: a line of JSON each,
 *
 *     {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}]}
 *
 * A conversation becomes a sample. Only what the assistant says is scored, with the token that ends it. */
#ifndef SL_DRIVERS_TEXT_CHATS_H
#define SL_DRIVERS_TEXT_CHATS_H

#include "drivers/text/chat_text.h"
#include "drivers/text/samples.h"

/* Zero-initialize; free with sl_chats_free. */
struct sl_chats {
    struct sl_samples samples;
    enum sl_chat_template template;
    int64_t left_out;  /* conversations with no answer within a sequence */
    int64_t shortened; /* others that lost their ends */
};

struct sl_chat_text {
    const struct sl_tokenizer *tokenizer; /* NULL: a token is a byte */
    enum sl_chat_template template;
    int sequence;   /* a sample has at most so many inputs: longer conversations lose their ends */
    int vocabulary; /* of the model: tokens are below; 0: all are allowed */
};

/* Reads the conversations of PATH, packed by gzip or not. Roles and contents are text, whatever they spell.
 * SL_BAD_INPUT names the line that is no conversation, or the special token that the tokenizer lacks. Free also after a
 * failure. */
int sl_chats_read(struct sl_chats *chats, const char *path, const struct sl_chat_text *text, struct sl_error *error);
void sl_chats_free(struct sl_chats *chats);

#endif
