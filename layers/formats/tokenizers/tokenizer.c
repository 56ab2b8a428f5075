/* tokenizer.c - opens tokenizers of any format, and decodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "layers/formats/tokenizers/formats_internal.h"

/* ---- the table of formats ---- */

static bool is_json(const char *bytes, size_t count) {
    size_t at = 0;
    while (at < count && strchr(" \t\r\n", bytes[at]) && bytes[at]) at++;
    return at < count && bytes[at] == '{';
}

static bool is_gguf(const char *bytes, size_t count) { return count >= 4 && !memcmp(bytes, "GGUF", 4); }

/* A message begins with its first piece, field 1 of wire type 2. */
static bool is_sentencepiece(const char *bytes, size_t count) {
    return count > 1 && bytes[0] == 0x0a && bytes[1] != '\n';
}

static bool is_anything(const char *bytes, size_t count) {
    (void)bytes;
    (void)count;
    return true;
}

static const struct {
    bool (*recognize)(const char *bytes, size_t count);
    sl_read_tokenizer *read;
} formats[] = {
    {is_json, sl_read_tokenizer_json},
    {is_gguf, sl_read_tokenizer_gguf},
    {is_sentencepiece, sl_read_sentencepiece},
    {is_anything, sl_read_tokenizer_ranks},
};

/* ---- opening ---- */

/* Writes PATH itself, or a tokenizer's file in the folder PATH, to FILE. */
static int find_file(const char *path, char file[4096], struct sl_error *error) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    struct stat status;
    if (strlen(path) + 20 > 4096) return sl_error_set(error, SL_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(file, 4096, "%s", path);
    if (stat(path, &status) || !S_ISDIR(status.st_mode)) return SL_OK;
    for (int i = 0; i < 2; i++) {
        snprintf(file, 4096, "%s/%s", path, names[i]);
        if (!stat(file, &status)) return SL_OK;
    }
    return sl_error_set(error, SL_BAD_INPUT, "%s: neither tokenizer.json nor tokenizer.model is in this folder", path);
}

static int read_contents(struct sl_tokenizer *t, const struct sl_contents *contents, const char *path,
                         struct sl_error *error) {
    const size_t mark = sl_contents_mark(contents);
    struct sl_contents rest = {contents->bytes, contents->count - mark, false};
    if (mark) rest.bytes = (char *)contents->bytes + mark; /* an empty file has no bytes to begin at */
    int i = 0;
    while (!formats[i].recognize(rest.bytes, rest.count)) i++;
    SL_TRY(formats[i].read(t, &rest, path, error));
    return sl_vocabulary_finish(t, path, error);
}

int sl_tokenizer_open(struct sl_tokenizer **tokenizer, const char *path, const char *pattern, struct sl_error *error) {
    char file[4096], names[120];
    struct sl_contents contents = {0};
    *tokenizer = NULL;
    SL_TRY(find_file(path, file, error));
    const struct sl_pattern *named = pattern ? sl_pattern_named(pattern) : NULL;
    if (pattern && !named)
        return sl_error_set(error, SL_BAD_INPUT, "no pattern is called \"%s\": choose %s", pattern,
                            sl_pattern_names(names));
    struct sl_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
    *t = (struct sl_tokenizer){.begin = -1, .end = -1, .unknown = -1, .pattern = named};
    memset(t->byte, 0xff, sizeof t->byte); /* -1: none */
    int status = sl_contents_open(&contents, file, error);
    if (!status) status = read_contents(t, &contents, file, error);
    sl_contents_close(&contents);
    if (status)
        sl_tokenizer_close(t);
    else
        *tokenizer = t;
    return status;
}

void sl_tokenizer_close(struct sl_tokenizer *t) {
    if (!t) return;
    sl_words_free(t->words);
    free(t->token);
    free(t->bytes);
    free(t->text.slot);
    free(t->special.slot);
    free(t->merge);
    free(t);
}

/* ---- tokens ---- */

int sl_tokenizer_vocabulary(const struct sl_tokenizer *t) { return t->count; }

const char *sl_token_bytes(const struct sl_tokenizer *t, int32_t token, size_t *count) {
    if (token < 0 || token >= t->count || t->token[token].kind == SL_TOKEN_NONE) return NULL;
    *count = t->token[token].length;
    return sl_vocabulary_bytes(t, token);
}

int32_t sl_token_begin(const struct sl_tokenizer *t) { return t->begin; }

int32_t sl_token_end(const struct sl_tokenizer *t) { return t->end; }

/* ---- decoding ---- */

int sl_decode(const struct sl_tokenizer *t, const int32_t *token, size_t count, char **text, size_t *bytes,
              struct sl_error *error) {
    size_t total = 0, length;
    *text = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!sl_token_bytes(t, token[i], &length))
            return sl_error_set(error, SL_BAD_INPUT,
                                "token number %zu is %d, which the tokenizer does not have: it has %d", i, token[i],
                                t->count);
        total += length;
    }
    char *to = *text = malloc(total + count + 1);
    if (!to) return sl_error_set(error, SL_FAILED, "out of memory for a text of %zu bytes", total);
    bool begins = true; /* at the start of a part: encoding may have put a space there */
    for (size_t i = 0; i < count; i++) {
        const char *from = sl_token_bytes(t, token[i], &length);
        const bool found = sl_vocabulary_is_found(t, token[i]);
        size_t blank = sl_vocabulary_blank(t, token[i]);
        if (begins && blank)
            blank = 0;
        else if (begins && !found && t->prefix && *from == ' ')
            from++, length--;
        if (blank) *to++ = ' ';
        memcpy(to, from, length);
        to += length;
        begins = found && !sl_vocabulary_blank(t, token[i]) && t->prefix != SL_PREFIX_FIRST;
    }
    *to = 0;
    *bytes = (size_t)(to - *text);
    return SL_OK;
}
