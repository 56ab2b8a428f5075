/* tokenizer_gguf.c - the tokenizer in a GGUF file's metadata: "gpt2", bytes with a list of merges, or "llama", pieces
 * with scores. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/models/gguf.h"
#include "layers/formats/tokenizers/formats_internal.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 }; /* tokenizer.ggml.token_type */

struct file {
    struct sl_tokenizer *tokenizer;
    struct sl_gguf gguf;
    const char *path;
    struct sl_error *error;
};

/* Finds the array KEY of TYPE; COUNT: its length, 0: any. */
static int find_array(const struct file *f, const char *key, enum sl_gguf_type type, uint64_t count,
                      const struct sl_gguf_value **value) {
    *value = sl_gguf_find(&f->gguf, key);
    if (*value && (*value)->array && (*value)->type == type && (!count || (*value)->count == count)) return SL_OK;
    return sl_error_set(f->error, SL_BAD_INPUT, "%s: %s is missing, or of another type or length than a tokenizer has",
                        f->path, key);
}

static bool text_is(struct sl_gguf_text text, const char *word) {
    return text.count == strlen(word) && !memcmp(text.bytes, word, text.count);
}

static int find_text(const struct file *f, const char *key, struct sl_gguf_text *text) {
    const struct sl_gguf_value *value = sl_gguf_find(&f->gguf, key);
    if (!value || value->array || value->type != SL_GGUF_STRING)
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: %s is missing, or no text", f->path, key);
    struct sl_gguf_cursor cursor = sl_gguf_begin(value);
    *text = sl_gguf_next_text(&cursor);
    return SL_OK;
}

static int add_token(const struct file *f, int number, struct sl_gguf_text text, int64_t type) {
    struct sl_tokenizer *t = f->tokenizer;
    char bytes[SL_LONGEST_TOKEN];
    const int byte = type == BYTE ? sl_unspell_byte_piece(text.bytes, text.count) : -1;
    if (byte >= 0) {
        t->byte[byte] = number;
        return sl_vocabulary_add(t, number, &(char){(char)byte}, 1, SL_TOKEN_BYTE, f->path, f->error);
    }
    if (type == CONTROL || type == UNKNOWN || type == USER_DEFINED)
        return sl_vocabulary_add(t, number, text.bytes, text.count,
                                 type == USER_DEFINED ? SL_TOKEN_ADDED : SL_TOKEN_SPECIAL, f->path, f->error);
    const int length = type != NORMAL ? -1
                       : t->pieces    ? sl_unspell_spaces(text.bytes, text.count, bytes)
                                      : sl_unspell_bytes(text.bytes, text.count, bytes);
    if (length > 0) return sl_vocabulary_add(t, number, bytes, (size_t)length, SL_TOKEN_TEXT, f->path, f->error);
    return sl_vocabulary_add(t, number, text.bytes, text.count, SL_TOKEN_UNUSED, f->path, f->error);
}

static int add_tokens(const struct file *f) {
    const struct sl_gguf_value *tokens, *types;
    SL_TRY(find_array(f, "tokenizer.ggml.tokens", SL_GGUF_STRING, 0, &tokens));
    if (!tokens->count || tokens->count > SL_MOST_TOKENS)
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: %llu tokens: allowed are 1 to %d", f->path,
                            (unsigned long long)tokens->count, SL_MOST_TOKENS);
    SL_TRY(find_array(f, "tokenizer.ggml.token_type", SL_GGUF_I32, tokens->count, &types));
    struct sl_gguf_cursor token = sl_gguf_begin(tokens), type = sl_gguf_begin(types);
    for (int i = 0; i < (int)tokens->count; i++)
        SL_TRY(add_token(f, i, sl_gguf_next_text(&token), sl_gguf_next_integer(&type)));
    return SL_OK;
}

static int add_merges(const struct file *f) {
    const struct sl_gguf_value *merges;
    SL_TRY(find_array(f, "tokenizer.ggml.merges", SL_GGUF_STRING, 0, &merges));
    struct sl_gguf_cursor cursor = sl_gguf_begin(merges);
    for (uint64_t i = 0; i < merges->count; i++) {
        const struct sl_gguf_text merge = sl_gguf_next_text(&cursor);
        const char *blank = memchr(merge.bytes, ' ', merge.count);
        const size_t left = blank ? (size_t)(blank - merge.bytes) : 0;
        if (!blank)
            return sl_error_set(f->error, SL_BAD_INPUT, "%s: merge %llu has no blank between two tokens", f->path,
                                (unsigned long long)i);
        SL_TRY(sl_add_spelled_merge(f->tokenizer, merge.bytes, left, blank + 1, merge.count - left - 1, (uint32_t)i,
                                    f->path, f->error));
    }
    return SL_OK;
}

static int merge_by_scores(const struct file *f) {
    const struct sl_gguf_value *scores;
    struct sl_tokenizer *t = f->tokenizer;
    SL_TRY(find_array(f, "tokenizer.ggml.scores", SL_GGUF_F32, (uint64_t)t->count, &scores));
    uint32_t *rank = malloc((size_t)t->count * sizeof *rank);
    if (!rank) return sl_error_set(f->error, SL_FAILED, "%s: out of memory", f->path);
    struct sl_gguf_cursor score = sl_gguf_begin(scores);
    int status = SL_OK;
    for (int i = 0; i < t->count && !status; i++) {
        const float value = sl_gguf_next_float(&score);
        rank[i] = sl_rank_of_score(value);
        if (!isfinite(value))
            status = sl_error_set(f->error, SL_BAD_INPUT, "%s: the score of token %d is not finite", f->path, i);
    }
    if (!status) status = sl_vocabulary_merge_all(t, rank, f->path, f->error);
    free(rank);
    return status;
}

static int choose_pattern(const struct file *f) {
    struct sl_tokenizer *t = f->tokenizer;
    struct sl_gguf_text name = {0};
    if (t->pattern) return SL_OK;
    SL_TRY(find_text(f, "tokenizer.ggml.pre", &name));
    t->pattern = sl_pattern_aliased(name.bytes, name.count);
    if (t->pattern) return SL_OK;
    char names[120];
    return sl_error_set(f->error, SL_BAD_INPUT, "%s: tokenizer.ggml.pre is \"%.*s\", which is none of the patterns %s",
                        f->path, name.count < 30 ? (int)name.count : 30, name.bytes, sl_pattern_names(names));
}

static int read_model(const struct file *f) {
    struct sl_tokenizer *t = f->tokenizer;
    struct sl_gguf_text model = {0};
    SL_TRY(find_text(f, "tokenizer.ggml.model", &model));
    t->pieces = text_is(model, "llama");
    if (!t->pieces && !text_is(model, "gpt2"))
        return sl_error_set(f->error, SL_BAD_INPUT,
                            "%s: tokenizer.ggml.model is \"%.*s\": supported are gpt2 and llama", f->path,
                            model.count < 30 ? (int)model.count : 30, model.bytes);
    if (t->pieces && t->pattern)
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: its tokenizer divides text itself: name no pattern", f->path);
    if (!t->pieces) SL_TRY(choose_pattern(f));
    SL_TRY(add_tokens(f));
    SL_TRY(t->pieces ? merge_by_scores(f) : add_merges(f));
    if (t->pieces && sl_gguf_integer(sl_gguf_find(&f->gguf, "tokenizer.ggml.add_space_prefix"), 1))
        t->prefix = SL_PREFIX_PREPEND;
    t->nfc = t->pattern && t->pattern->nfc;
    t->whole = t->pattern && !strcmp(t->pattern->name, "llama3"); /* as ignore_merges in its tokenizer.json */
    const int64_t begin = sl_gguf_integer(sl_gguf_find(&f->gguf, "tokenizer.ggml.bos_token_id"), -1),
                  end = sl_gguf_integer(sl_gguf_find(&f->gguf, "tokenizer.ggml.eos_token_id"), -1),
                  unknown = sl_gguf_integer(sl_gguf_find(&f->gguf, "tokenizer.ggml.unknown_token_id"), -1);
    t->begin = begin >= 0 && begin < t->count ? (int32_t)begin : -1;
    t->end = end >= 0 && end < t->count ? (int32_t)end : -1;
    t->unknown = unknown >= 0 && unknown < t->count ? (int32_t)unknown : -1;
    return SL_OK;
}

int sl_read_tokenizer_gguf(struct sl_tokenizer *t, const struct sl_contents *contents, const char *path,
                           struct sl_error *error) {
    struct file file = {.tokenizer = t, .path = path, .error = error};
    int status = sl_gguf_open(&file.gguf, contents, path, error);
    if (!status) status = read_model(&file);
    sl_gguf_close(&file.gguf);
    return status;
}
