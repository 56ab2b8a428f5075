/* chats.c - reads conversations as samples. */
#include "drivers/tools/text/chats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/tools/text/documents.h"

struct reader {
    struct sl_chats *chats;
    const struct sl_chat_text *text;
    struct sl_chat_writer writer; /* of the present conversation */
};

/* ---- conversations ---- */

/* Whether a message is scored: an assistant's, unless its weight is 0. */
static bool is_learned(const json_t *message) {
    const json_t *weight = json_object_get(message, "weight");
    return !strcmp(json_string_value(json_object_get(message, "role")), "assistant") &&
           (!json_is_number(weight) || json_number_value(weight) != 0.0);
}

static int add_message(struct reader *r, const json_t *message, struct sl_error *error) {
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    return sl_chat_add(&r->writer, json_string_value(role), json_string_length(role), json_string_value(content),
                       json_string_length(content), is_learned(message), error);
}

static int refuse(const struct sl_document *document, struct sl_error *error, const char *what) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: %s", document->path, document->line, what);
}

/* Checks that the messages have texts, and that one is the assistant's. */
static int check_messages(const struct sl_document *document, const json_t *messages, struct sl_error *error) {
    static const char *const keys[] = {"role", "content"};
    const json_t *message;
    bool answers = false;
    size_t i;
    if (!json_is_array(messages)) return refuse(document, error, "no array under the key \"messages\"");
    json_array_foreach(messages, i, message) {
        for (int k = 0; k < 2; k++)
            if (!json_is_string(json_object_get(message, keys[k])))
                return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: message %zu has no text under the key \"%s\"",
                                    document->path, document->line, i, keys[k]);
        const json_t *weight = json_object_get(message, "weight");
        const double number = json_number_value(weight);
        if (weight && !json_is_null(weight) && !(json_is_number(weight) && (number == 0.0 || number == 1.0)))
            return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: the weight of message %zu is neither 0 nor 1",
                                document->path, document->line, i);
        answers |= is_learned(message);
    }
    return answers ? SL_OK
                   : refuse(document, error, "no message has the role \"assistant\", and another weight than 0");
}

static int check_tokens(const struct reader *r, const struct sl_document *document, struct sl_error *error) {
    const int vocabulary = r->text->vocabulary;
    for (size_t i = 0; vocabulary && i < r->writer.tokens.count; i++)
        if (r->writer.tokens.token[i] >= vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: token %d, but the vocabulary has 0 to %d",
                                document->path, document->line, r->writer.tokens.token[i], vocabulary - 1);
    return SL_OK;
}

/* Adds the encoded conversation, if its first sequence has any scored tokens. */
static int add_sample(struct reader *r, struct sl_error *error) {
    struct sl_chats *chats = r->chats;
    const struct sl_token_list *tokens = &r->writer.tokens, *answers = &r->writer.answers;
    const size_t most = (size_t)r->text->sequence + 1, count = tokens->count < most ? tokens->count : most;
    bool scored = false;
    for (size_t i = 1; i < count; i++) scored |= answers->token[i];
    chats->left_out += !scored;
    chats->shortened += scored && count < tokens->count;
    return scored ? sl_samples_add_marked(&chats->samples, tokens->token, answers->token, count, error) : SL_OK;
}

static int add_conversation(struct reader *r, const struct sl_document *document, const json_t *messages,
                            struct sl_error *error) {
    const json_t *message;
    size_t i;
    SL_TRY(check_messages(document, messages, error));
    SL_TRY(sl_chat_begin(&r->writer, error));
    json_array_foreach(messages, i, message) SL_TRY(add_message(r, message, error));
    SL_TRY(check_tokens(r, document, error));
    return add_sample(r, error);
}

/* ---- files ---- */

static int add_line(struct reader *r, const struct sl_document *document, struct sl_error *error) {
    json_t *object;
    int status = sl_document_object(document, &object, error);
    if (status == SL_OK) status = add_conversation(r, document, json_object_get(object, "messages"), error);
    json_decref(object);
    return status;
}

static int read_lines(struct reader *r, const struct sl_token_file *file, struct sl_error *error) {
    const struct sl_chats *chats = r->chats;
    struct sl_document_lines lines = {.file = file};
    struct sl_document document;
    while (sl_document_next_line(&lines, &document)) SL_TRY(add_line(r, &document, error));
    if (chats->samples.count) return SL_OK;
    if (!chats->left_out)
        return sl_error_set(error, SL_BAD_INPUT, "%s: no conversations: a line of JSON is one", file->path);
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: no conversation has an answer within its first %d tokens (--sequence)", file->path,
                        r->text->sequence);
}

int sl_chats_read(struct sl_chats *chats, const char *path, const struct sl_chat_text *text, struct sl_error *error) {
    struct sl_token_file file = {.path = (char *)path};
    struct reader reader = {.chats = chats, .text = text};
    int status = sl_document_lines_open(&file, error);
    if (status == SL_OK) status = sl_chat_writer_open(&reader.writer, text->tokenizer, text->template, error);
    chats->template = reader.writer.template;
    if (status == SL_OK) status = read_lines(&reader, &file, error);
    sl_chat_writer_close(&reader.writer);
    sl_contents_close(&file.contents);
    return status;
}

void sl_chats_free(struct sl_chats *chats) { sl_samples_free(&chats->samples); }
