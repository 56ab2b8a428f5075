/* chats.h - conversations to train answers on: a line of JSON each,
 *
 *     {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}]}
 *
 * A conversation becomes a sample. Only the assistant's answers are scored, with the tokens that end them. */
#ifndef SL_DRIVERS_TOOLS_TEXT_CHATS_H
#define SL_DRIVERS_TOOLS_TEXT_CHATS_H

#include "drivers/tools/text/chat_text.h"
#include "drivers/tools/text/samples.h"

/* Zero-initialize; free with sl_chats_free. */
struct sl_chats {
    struct sl_samples samples;
    enum sl_chat_template template;
    int64_t left_out;  /* conversations without an answer inside a sequence */
    int64_t shortened; /* other conversations with a cut end */
};

struct sl_chat_text {
    const struct sl_tokenizer *tokenizer; /* NULL: a token is a byte */
    enum sl_chat_template template;
    int sequence;   /* most inputs of a sample: longer conversations are cut at the end */
    int vocabulary; /* of the model: larger tokens are refused; 0: all are allowed */
};

/* Reads the conversations of PATH, optionally compressed by gzip. Roles and contents are encoded as text, even if
 * they spell special tokens. SL_BAD_INPUT names an invalid line, or the special token that the tokenizer lacks. Free
 * also after a failure. */
int sl_chats_read(struct sl_chats *chats, const char *path, const struct sl_chat_text *text, struct sl_error *error);
void sl_chats_free(struct sl_chats *chats);

#endif
