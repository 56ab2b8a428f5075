/* chats.c - reads conversations, and makes samples of them. */
#include "drivers/text/chats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/text/documents.h"

/* A template's special tokens, by their spelling; NULL: there is none. */
struct spelling {
    const char *first; /* before all messages */
    const char *begin; /* of a message */
    const char *named; /* after its role */
    const char *end;   /* of its content */
    const char *after; /* text behind that */
    const char *gap;   /* text before the content */
    bool trims;
};
static const struct spelling spellings[] = {
    [SL_CHAT_CHATML] = {NULL, "<|im_start|>", NULL, "<|im_end|>", "\n", "\n", false},
    [SL_CHAT_LLAMA3] = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "", "\n\n",
                        true},
};

struct reader {
    struct sl_chats *chats;
    const struct sl_chat_text *text;
    const struct spelling *spelling;
    struct sl_encoder *encoder;           /* NULL: a token is a byte */
    struct sl_token_list tokens, answers; /* of a conversation; answers: 1 for each that is scored, else 0 */
    char *joined;                         /* [room]: what stands between two special tokens */
    size_t room;
};

/* ---- tokens ---- */

static bool has(const struct sl_tokenizer *tokenizer, const char *token) {
    return sl_token_find(tokenizer, token, strlen(token)) >= 0;
}

static int choose_template(struct reader *r, struct sl_error *error) {
    const struct sl_tokenizer *tokenizer = r->text->tokenizer;
    enum sl_chat_template template = r->text->template;
    if (template == SL_CHAT_BY_TOKENIZER && tokenizer && !has(tokenizer, "<|im_start|>"))
        template = has(tokenizer, "<|start_header_id|>") ? SL_CHAT_LLAMA3 : SL_CHAT_BY_TOKENIZER;
    else if (template == SL_CHAT_BY_TOKENIZER)
        template = SL_CHAT_CHATML;
    if (template == SL_CHAT_BY_TOKENIZER)
        return sl_error_set(error, SL_BAD_INPUT,
                            "the tokenizer has neither <|im_start|>, for ChatML, nor <|start_header_id|>, for Llama 3");
    r->chats->template = template;
    r->spelling = &spellings[template];
    const char *const needed[] = {r->spelling->first, r->spelling->begin, r->spelling->named, r->spelling->end};
    for (size_t i = 0; tokenizer && i < sizeof needed / sizeof *needed; i++)
        if (needed[i] && !has(tokenizer, needed[i]))
            return sl_error_set(error, SL_BAD_INPUT, "the tokenizer has no token %s, which the template needs",
                                needed[i]);
    return SL_OK;
}

static int no_memory(struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "no memory for a conversation's tokens");
}

/* Those tokens of the list that have no mark yet get one. */
static int mark(struct reader *r, size_t from, bool scored, struct sl_error *error) {
    while (r->answers.count < r->tokens.count)
        if (!sl_token_list_add(&r->answers, scored && r->answers.count >= from)) return no_memory(error);
    return SL_OK;
}

static int add_bytes(struct reader *r, const char *bytes, size_t count, struct sl_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!sl_token_list_add(&r->tokens, (uint8_t)bytes[i])) return no_memory(error);
    return SL_OK;
}

static int add_special(struct reader *r, const char *spelled, bool scored, struct sl_error *error) {
    const size_t count = spelled ? strlen(spelled) : 0;
    if (!spelled) return SL_OK;
    if (!r->encoder)
        SL_TRY(add_bytes(r, spelled, count, error));
    else if (!sl_token_list_add(&r->tokens, sl_token_find(r->text->tokenizer, spelled, count)))
        return no_memory(error);
    return mark(r, 0, scored, error);
}

/* The first token from number AT on that ends behind BYTES bytes. */
static size_t token_behind(const struct reader *r, size_t at, size_t bytes) {
    for (size_t sum = 0; at < r->tokens.count; at++) {
        size_t count = 1;
        if (r->encoder) sl_token_bytes(r->text->tokenizer, r->tokens.token[at], &count);
        sum += count;
        if (sum > bytes) break;
    }
    return at;
}

/* COUNT bytes of text, whose tokens behind the first SILENT bytes are SCORED. */
static int add_text(struct reader *r, const char *text, size_t count, size_t silent, bool scored,
                    struct sl_error *error) {
    const size_t before = r->tokens.count;
    SL_TRY(r->encoder ? sl_encode(r->encoder, text, count, false, &r->tokens, error)
                      : add_bytes(r, text, count, error));
    return mark(r, token_behind(r, before, silent), scored, error);
}

/* ---- messages ---- */

static bool is_blank(char c) { return c && strchr(" \t\r\n\v\f", c); }

static bool make_room(struct reader *r, size_t count) {
    char *joined = count > r->room ? realloc(r->joined, count) : r->joined;
    if (!joined) return false;
    r->joined = joined;
    r->room = count > r->room ? count : r->room;
    return true;
}

/* Role, gap and content are one text where no special token stands between. */
static int add_message(struct reader *r, const json_t *message, struct sl_error *error) {
    const struct spelling *s = r->spelling;
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    const bool scored = !strcmp(json_string_value(role), "assistant");
    const char *text = json_string_value(content);
    size_t bytes = json_string_length(content), named = json_string_length(role), at = 0;
    while (s->trims && bytes && is_blank(text[bytes - 1])) bytes--;
    while (s->trims && bytes && is_blank(*text)) text++, bytes--;
    SL_TRY(add_special(r, s->begin, false, error));
    if (s->named) {
        SL_TRY(add_text(r, json_string_value(role), named, 0, false, error));
        SL_TRY(add_special(r, s->named, false, error));
        named = 0;
    }
    const size_t gap = strlen(s->gap);
    if (!make_room(r, named + gap + bytes + 1)) return no_memory(error);
    memcpy(r->joined + at, json_string_value(role), named), at += named;
    memcpy(r->joined + at, s->gap, gap), at += gap;
    memcpy(r->joined + at, text, bytes);
    SL_TRY(add_text(r, r->joined, at + bytes, at, scored, error));
    SL_TRY(add_special(r, s->end, scored, error));
    return add_text(r, s->after, strlen(s->after), 0, false, error);
}

static int refuse(const struct sl_document *document, struct sl_error *error, const char *what) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: %s", document->path, document->line, what);
}

/* Messages with texts, of which one is the assistant's. */
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
        answers |= !strcmp(json_string_value(json_object_get(message, "role")), "assistant");
    }
    return answers ? SL_OK : refuse(document, error, "no message has the role \"assistant\"");
}

static int check_tokens(const struct reader *r, const struct sl_document *document, struct sl_error *error) {
    const int vocabulary = r->text->vocabulary;
    for (size_t i = 0; vocabulary && i < r->tokens.count; i++)
        if (r->tokens.token[i] >= vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: token %d, but the vocabulary has 0 to %d",
                                document->path, document->line, r->tokens.token[i], vocabulary - 1);
    return SL_OK;
}

/* The conversation whose tokens were read, if a sequence has anything that is scored. */
static int add_sample(struct reader *r, struct sl_error *error) {
    struct sl_chats *chats = r->chats;
    const size_t most = (size_t)r->text->sequence + 1, count = r->tokens.count < most ? r->tokens.count : most;
    bool scored = false;
    for (size_t i = 1; i < count; i++) scored |= r->answers.token[i];
    chats->left_out += !scored;
    chats->shortened += scored && count < r->tokens.count;
    return scored ? sl_samples_add_marked(&chats->samples, r->tokens.token, r->answers.token, count, error) : SL_OK;
}

static int add_conversation(struct reader *r, const struct sl_document *document, const json_t *messages,
                            struct sl_error *error) {
    const json_t *message;
    size_t i;
    SL_TRY(check_messages(document, messages, error));
    r->tokens.count = r->answers.count = 0;
    SL_TRY(add_special(r, r->spelling->first, false, error));
    json_array_foreach(messages, i, message) SL_TRY(add_message(r, message, error));
    SL_TRY(check_tokens(r, document, error));
    return add_sample(r, error);
}

/* ---- files ---- */

static int add_line(struct reader *r, const struct sl_document *document, struct sl_error *error) {
    json_error_t wrong;
    json_t *object = json_loadb(document->bytes, document->count, JSON_ALLOW_NUL, &wrong);
    const int status = object ? add_conversation(r, document, json_object_get(object, "messages"), error)
                              : refuse(document, error, wrong.text);
    json_decref(object);
    return status;
}

static int read_lines(struct reader *r, const struct sl_token_file *file, struct sl_error *error) {
    const struct sl_chats *chats = r->chats;
    struct sl_document_lines lines = {.file = file};
    struct sl_document document;
    SL_TRY(choose_template(r, error));
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
    if (status == SL_OK && text->tokenizer) status = sl_encoder_open(&reader.encoder, text->tokenizer, error);
    if (status == SL_OK) status = read_lines(&reader, &file, error);
    sl_encoder_close(reader.encoder);
    sl_token_list_free(&reader.tokens);
    sl_token_list_free(&reader.answers);
    free(reader.joined);
    sl_contents_close(&file.contents);
    return status;
}

void sl_chats_free(struct sl_chats *chats) { sl_samples_free(&chats->samples); }
