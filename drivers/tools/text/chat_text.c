/* chat_text.c - writes chat messages as tokens. */
#include "drivers/tools/text/chat_text.h"

#include <stdlib.h>
#include <string.h>

/* Spellings of a template's special tokens; NULL: none. */
struct sl_chat_spelling {
    const char *first; /* before all messages */
    const char *begin; /* of a message */
    const char *named; /* after its role */
    const char *end;   /* of its content */
    const char *after; /* text after that token */
    const char *gap;   /* text before the content */
    bool trims;
};
static const struct sl_chat_spelling spellings[] = {
    [SL_CHAT_CHATML] = {NULL, "<|im_start|>", NULL, "<|im_end|>", "\n", "\n", false},
    [SL_CHAT_LLAMA3] = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "", "\n\n",
                        true},
};
const char *const sl_chat_template_names[] = {[SL_CHAT_CHATML] = "ChatML", [SL_CHAT_LLAMA3] = "Llama 3"};

/* ---- opening ---- */

static bool has(const struct sl_tokenizer *tokenizer, const char *token) {
    return sl_token_find(tokenizer, token, strlen(token)) >= 0;
}

static enum sl_chat_template template_of(const struct sl_tokenizer *tokenizer) {
    if (!tokenizer || has(tokenizer, "<|im_start|>")) return SL_CHAT_CHATML;
    return has(tokenizer, "<|start_header_id|>") ? SL_CHAT_LLAMA3 : SL_CHAT_BY_TOKENIZER;
}

bool sl_chat_has_template(const struct sl_tokenizer *tokenizer) {
    return template_of(tokenizer) != SL_CHAT_BY_TOKENIZER;
}

static int choose_template(struct sl_chat_writer *w, enum sl_chat_template template, struct sl_error *error) {
    const struct sl_tokenizer *tokenizer = w->tokenizer;
    if (template == SL_CHAT_BY_TOKENIZER) template = template_of(tokenizer);
    if (template == SL_CHAT_BY_TOKENIZER)
        return sl_error_set(error, SL_BAD_INPUT,
                            "the tokenizer has neither <|im_start|>, for ChatML, nor <|start_header_id|>, for Llama 3");
    w->template = template;
    w->spelling = &spellings[template];
    const char *const needed[] = {w->spelling->first, w->spelling->begin, w->spelling->named, w->spelling->end};
    for (size_t i = 0; tokenizer && i < sizeof needed / sizeof *needed; i++)
        if (needed[i] && !has(tokenizer, needed[i]))
            return sl_error_set(error, SL_BAD_INPUT, "the tokenizer has no token %s, which the template needs",
                                needed[i]);
    return SL_OK;
}

int sl_chat_writer_open(struct sl_chat_writer *w, const struct sl_tokenizer *tokenizer, enum sl_chat_template template,
                        struct sl_error *error) {
    *w = (struct sl_chat_writer){.tokenizer = tokenizer};
    SL_TRY(choose_template(w, template, error));
    return tokenizer ? sl_encoder_open(&w->encoder, tokenizer, error) : SL_OK;
}

void sl_chat_writer_close(struct sl_chat_writer *w) {
    sl_encoder_close(w->encoder);
    sl_token_list_free(&w->tokens);
    sl_token_list_free(&w->answers);
    free(w->joined);
    *w = (struct sl_chat_writer){0};
}

const char *sl_chat_end(const struct sl_chat_writer *w) { return w->spelling->end; }

/* ---- tokens ---- */

static int no_memory(struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "no memory for a conversation's tokens");
}

/* Marks the tokens that have no mark yet. */
static int mark(struct sl_chat_writer *w, size_t from, bool scored, struct sl_error *error) {
    while (w->answers.count < w->tokens.count)
        if (!sl_token_list_add(&w->answers, scored && w->answers.count >= from)) return no_memory(error);
    return SL_OK;
}

static int add_bytes(struct sl_chat_writer *w, const char *bytes, size_t count, struct sl_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!sl_token_list_add(&w->tokens, (uint8_t)bytes[i])) return no_memory(error);
    return SL_OK;
}

static int add_special(struct sl_chat_writer *w, const char *spelled, bool scored, struct sl_error *error) {
    const size_t count = spelled ? strlen(spelled) : 0;
    if (!spelled) return SL_OK;
    if (!w->encoder)
        SL_TRY(add_bytes(w, spelled, count, error));
    else if (!sl_token_list_add(&w->tokens, sl_token_find(w->tokenizer, spelled, count)))
        return no_memory(error);
    return mark(w, 0, scored, error);
}

/* Returns the first token, from index AT on, that ends after BYTES bytes. */
static size_t token_behind(const struct sl_chat_writer *w, size_t at, size_t bytes) {
    for (size_t sum = 0; at < w->tokens.count; at++) {
        size_t count = 1;
        if (w->encoder) sl_token_bytes(w->tokenizer, w->tokens.token[at], &count);
        sum += count;
        if (sum > bytes) break;
    }
    return at;
}

/* Adds COUNT bytes of text; tokens after the first SILENT bytes are SCORED. */
static int add_text(struct sl_chat_writer *w, const char *text, size_t count, size_t silent, bool scored,
                    struct sl_error *error) {
    const size_t before = w->tokens.count;
    const bool prefixed = w->encoder && sl_encode_prefixes(w->tokenizer, text, count, before > 0);
    SL_TRY(w->encoder ? sl_encode(w->encoder, text, count, before ? SL_ENCODE_BEHIND : 0, &w->tokens, error)
                      : add_bytes(w, text, count, error));
    return mark(w, token_behind(w, before, silent + prefixed), scored, error);
}

/* ---- messages ---- */

static bool is_blank(char c) { return c && strchr(" \t\r\n\v\f", c); }

static bool make_room(struct sl_chat_writer *w, size_t count) {
    char *joined = count > w->room ? realloc(w->joined, count) : w->joined;
    if (!joined) return false;
    w->joined = joined;
    w->room = count > w->room ? count : w->room;
    return true;
}

int sl_chat_begin(struct sl_chat_writer *w, struct sl_error *error) {
    w->tokens.count = w->answers.count = 0;
    return add_special(w, w->spelling->first, false, error);
}

/* Adds role, gap and content, encoded together unless special tokens separate them. */
static int add_head(struct sl_chat_writer *w, const char *role, size_t named, const char *text, size_t bytes,
                    bool scored, struct sl_error *error) {
    const struct sl_chat_spelling *s = w->spelling;
    size_t at = 0;
    SL_TRY(add_special(w, s->begin, false, error));
    if (s->named) {
        SL_TRY(add_text(w, role, named, 0, false, error));
        SL_TRY(add_special(w, s->named, false, error));
        named = 0;
    }
    const size_t gap = strlen(s->gap);
    if (!make_room(w, named + gap + bytes + 1)) return no_memory(error);
    memcpy(w->joined + at, role, named), at += named;
    memcpy(w->joined + at, s->gap, gap), at += gap;
    memcpy(w->joined + at, text, bytes);
    return add_text(w, w->joined, at + bytes, at, scored, error);
}

int sl_chat_add(struct sl_chat_writer *w, const char *role, size_t role_bytes, const char *text, size_t bytes,
                bool scored, struct sl_error *error) {
    const struct sl_chat_spelling *s = w->spelling;
    while (s->trims && bytes && is_blank(text[bytes - 1])) bytes--;
    while (s->trims && bytes && is_blank(*text)) text++, bytes--;
    SL_TRY(add_head(w, role, role_bytes, text, bytes, scored, error));
    SL_TRY(add_special(w, s->end, scored, error));
    return sl_chat_end_message(w, true, error);
}

int sl_chat_begin_message(struct sl_chat_writer *w, const char *role, struct sl_error *error) {
    return add_head(w, role, strlen(role), "", 0, false, error);
}

int sl_chat_end_message(struct sl_chat_writer *w, bool ended, struct sl_error *error) {
    const char *after = w->spelling->after;
    if (!ended) SL_TRY(add_special(w, w->spelling->end, false, error));
    return add_text(w, after, strlen(after), 0, false, error);
}
