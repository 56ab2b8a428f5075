/* tokenizer_json.c - reads tokenizer.json of Hugging Face's tokenizers. Parts used by published models are supported;
 * others are refused by name. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "layers/formats/tokenizers/formats_internal.h"

struct file {
    struct sl_tokenizer *tokenizer;
    const char *path;
    struct sl_error *error;
};

static int unsupported(const struct file *f, const char *what, const char *value) {
    return sl_error_set(f->error, SL_BAD_INPUT, "%s: %s \"%.60s\" is not supported", f->path, what, value);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- normalizer ---- */

/* Reads a step: NFC, or steps for SentencePiece's marks of spaces. */
static int read_normalizer_step(const struct file *f, const json_t *step) {
    struct sl_tokenizer *t = f->tokenizer;
    const char *type = text_of(step, "type");
    if (!strcmp(type, "NFC"))
        t->nfc = true;
    else if (!strcmp(type, "Prepend") && t->pieces && !strcmp(text_of(step, "prepend"), "\xe2\x96\x81"))
        t->prefix = SL_PREFIX_PREPEND;
    else if (strcmp(type, "Replace") != 0 || !t->pieces ||
             strcmp(text_of(json_object_get(step, "pattern"), "String"), " ") != 0 ||
             strcmp(text_of(step, "content"), "\xe2\x96\x81") != 0)
        return unsupported(f, "normalizer", type);
    return SL_OK;
}

static int read_normalizer(const struct file *f, const json_t *normalizer) {
    size_t i;
    json_t *step;
    if (!json_is_object(normalizer)) return SL_OK;
    if (strcmp(text_of(normalizer, "type"), "Sequence") != 0) return read_normalizer_step(f, normalizer);
    json_array_foreach(json_object_get(normalizer, "normalizers"), i, step) SL_TRY(read_normalizer_step(f, step));
    return SL_OK;
}

/* ---- pre-tokenizer ---- */

/* All steps of a pre_tokenizer together. */
struct division {
    bool digits, bytes, words; /* words: ByteLevel, the last step, divides as GPT-2 does */
    const char *source;        /* of a Split */
};

static int read_division(const struct file *f, const json_t *step, struct division *division) {
    const char *type = text_of(step, "type");
    if (division->bytes) return unsupported(f, "pre_tokenizer: behind ByteLevel, the step", type);
    if (!strcmp(type, "ByteLevel") && !json_is_true(json_object_get(step, "add_prefix_space"))) {
        division->bytes = true;
        division->words = !json_is_false(json_object_get(step, "use_regex"));
    } else if (!strcmp(type, "Digits") && json_is_true(json_object_get(step, "individual_digits"))) {
        division->digits = true;
    } else if (!strcmp(type, "Split") && !division->source && !strcmp(text_of(step, "behavior"), "Isolated") &&
               !json_is_true(json_object_get(step, "invert"))) {
        division->source = text_of(json_object_get(step, "pattern"), "Regex");
    } else {
        return unsupported(f, "pre_tokenizer", type);
    }
    return SL_OK;
}

static int choose_pattern(const struct file *f, const struct division *d) {
    const struct sl_pattern *pattern = d->source               ? sl_pattern_of(d->source)
                                       : d->words && d->digits ? sl_pattern_named("smollm")
                                       : d->words              ? sl_pattern_named("gpt2")
                                                               : NULL;
    if (!pattern || !d->bytes || (d->source && (d->words || d->digits)))
        return unsupported(f, "dividing text into words by the pre_tokenizer's pattern", d->source ? d->source : "");
    if (!f->tokenizer->pattern) f->tokenizer->pattern = pattern;
    return SL_OK;
}

/* Reads the pre_tokenizer of pieces: none, or one only marking spaces. */
static int read_metaspace(const struct file *f, const json_t *step) {
    static const char *const schemes[] = {
        [SL_PREFIX_NONE] = "never", [SL_PREFIX_FIRST] = "first", [SL_PREFIX_ALWAYS] = "always"};
    const char *scheme = text_of(step, "prepend_scheme"), *mark = text_of(step, "replacement");
    int prefix = *scheme ? SL_PREFIX_NONE : SL_PREFIX_ALWAYS;
    if (!json_is_object(step)) return SL_OK;
    while (*scheme && prefix <= SL_PREFIX_ALWAYS && strcmp(scheme, schemes[prefix]) != 0) prefix++;
    if (strcmp(text_of(step, "type"), "Metaspace") != 0 || !json_is_false(json_object_get(step, "split")) ||
        (*mark && strcmp(mark, "\xe2\x96\x81") != 0))
        return unsupported(f, "pre_tokenizer", text_of(step, "type"));
    if (prefix > SL_PREFIX_ALWAYS) return unsupported(f, "prepend_scheme", scheme);
    if (!f->tokenizer->prefix) f->tokenizer->prefix = (enum sl_prefix)prefix; /* else a normalizer puts the space */
    return SL_OK;
}

static int read_pre_tokenizer(const struct file *f, const json_t *pre) {
    struct division division = {0};
    size_t i;
    json_t *step;
    if (f->tokenizer->pieces) return read_metaspace(f, pre);
    if (strcmp(text_of(pre, "type"), "Sequence") != 0)
        SL_TRY(read_division(f, pre, &division));
    else
        json_array_foreach(json_object_get(pre, "pretokenizers"), i, step) SL_TRY(read_division(f, step, &division));
    return choose_pattern(f, &division);
}

/* ---- tokens ---- */

/* Whether TEXT is normalized; a token found in normalized text must be. */
static bool is_normal(const char *text, size_t bytes) {
    utf8proc_uint8_t *normal = NULL;
    const utf8proc_ssize_t count = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &normal,
                                                UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const bool same = count >= 0 && (size_t)count == bytes && !memcmp(normal, text, bytes);
    free(normal);
    return same;
}

/* Reads the flag `normalized` of an added token. If no normalizer changes text, such a token is found in the original
 * text. */
static int read_normalized(const struct file *f, const json_t *about, const json_t *content) {
    struct sl_tokenizer *t = f->tokenizer;
    const json_t *flag = json_object_get(about, "normalized");
    const bool special = json_is_true(json_object_get(about, "special"));
    if (json_is_boolean(flag) ? json_is_false(flag) : special) return SL_OK;
    if (!t->nfc && t->prefix != SL_PREFIX_PREPEND) return SL_OK;
    if (t->nfc && !is_normal(json_string_value(content), json_string_length(content)))
        return unsupported(f, "a token that normalizing changes,", json_string_value(content));
    t->token[json_integer_value(json_object_get(about, "id"))].normalized = t->normalizes = true;
    return SL_OK;
}

static int read_special(const struct file *f, const json_t *token) {
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    const json_t *number = json_object_get(token, "id"), *content = json_object_get(token, "content");
    if (!json_is_integer(number) || !json_is_string(content))
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: an object of added_tokens has no \"id\" or \"content\"",
                            f->path);
    for (int i = 0; i < 3; i++)
        if (json_is_true(json_object_get(token, flags[i]))) return unsupported(f, "a token that is", flags[i]);
    const bool special = json_is_true(json_object_get(token, "special"));
    SL_TRY(sl_vocabulary_add(f->tokenizer, json_integer_value(number), json_string_value(content),
                             json_string_length(content), special ? SL_TOKEN_SPECIAL : SL_TOKEN_ADDED, f->path,
                             f->error));
    return read_normalized(f, token, content);
}

static int read_token(const struct file *f, const char *text, const json_t *number) {
    struct sl_tokenizer *t = f->tokenizer;
    char bytes[SL_LONGEST_TOKEN];
    const size_t count = strlen(text);
    if (!json_is_integer(number))
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: the number of the token \"%.40s\" is no number", f->path,
                            text);
    const json_int_t token = json_integer_value(number);
    if (token >= 0 && token < t->count && sl_vocabulary_is_found(t, (int32_t)token)) return SL_OK; /* listed twice */
    const int byte = t->pieces ? sl_unspell_byte_piece(text, count) : -1;
    if (byte >= 0) {
        SL_TRY(sl_vocabulary_add(t, token, &(char){(char)byte}, 1, SL_TOKEN_BYTE, f->path, f->error));
        t->byte[byte] = (int32_t)token;
        return SL_OK;
    }
    const int length = t->pieces ? sl_unspell_spaces(text, count, bytes) : sl_unspell_bytes(text, count, bytes);
    if (length > 0) return sl_vocabulary_add(t, token, bytes, (size_t)length, SL_TOKEN_TEXT, f->path, f->error);
    return sl_vocabulary_add(t, token, text, count, SL_TOKEN_UNUSED, f->path, f->error);
}

/* Reads "LEFT RIGHT", or ["LEFT", "RIGHT"]. */
static int read_merge(const struct file *f, const json_t *merge, size_t rank) {
    const char *left = json_string_value(json_is_array(merge) ? json_array_get(merge, 0) : merge), *right;
    size_t count = left ? strlen(left) : 0;
    if (json_is_array(merge)) {
        right = json_string_value(json_array_get(merge, 1));
    } else {
        const char *blank = left ? strchr(left, ' ') : NULL;
        right = blank ? blank + 1 : NULL;
        if (blank) count = (size_t)(blank - left);
    }
    if (!left || !right) return sl_error_set(f->error, SL_BAD_INPUT, "%s: merge %zu is not two texts", f->path, rank);
    return sl_add_spelled_merge(f->tokenizer, left, count, right, strlen(right), (uint32_t)rank, f->path, f->error);
}

static int read_model(const struct file *f, const json_t *model) {
    static const char *const absent[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *vocabulary = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    const char *text;
    json_t *value;
    size_t i;
    for (i = 0; i < 3; i++) {
        const json_t *field = json_object_get(model, absent[i]);
        if (field && !json_is_null(field) && *text_of(model, absent[i])) return unsupported(f, "model", absent[i]);
        if (json_is_number(field)) return unsupported(f, "model", absent[i]);
    }
    if (!json_is_object(vocabulary) || !json_is_array(merges))
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: its model has no object \"vocab\" or no list \"merges\"",
                            f->path);
    json_object_foreach((json_t *)vocabulary, text, value) SL_TRY(read_token(f, text, value));
    json_array_foreach(merges, i, value) SL_TRY(read_merge(f, value, i));
    text = text_of(model, "unk_token");
    if (*text && !f->tokenizer->pieces) f->tokenizer->unknown = sl_token_find(f->tokenizer, text, strlen(text));
    if (f->tokenizer->unknown >= 0 && json_is_true(json_object_get(model, "fuse_unk")))
        return unsupported(f, "model", "fuse_unk");
    f->tokenizer->whole = json_is_true(json_object_get(model, "ignore_merges"));
    return SL_OK;
}

/* ---- tokens that begin and end a text ---- */

static int32_t find_named(const struct file *f, const json_t *config, const char *key) {
    const json_t *named = json_object_get(config, key);
    const char *text = json_is_object(named) ? text_of(named, "content") : text_of(config, key);
    return *text ? sl_vocabulary_find(f->tokenizer, SL_TOKEN_SPECIAL, text, strlen(text)) : -1;
}

/* Finds the token by its usual names, because the file itself does not name begin and end tokens. */
static int32_t find_usual(const struct file *f, const char *const *names) {
    int32_t token = -1;
    for (; *names && token < 0; names++)
        token = sl_vocabulary_find(f->tokenizer, SL_TOKEN_SPECIAL, *names, strlen(*names));
    return token;
}

/* Reads tokenizer_config.json beside the file, if there is one. */
static void read_config(const struct file *f) {
    static const char *const begins[] = {"<s>", "<|begin_of_text|>", NULL};
    static const char *const ends[] = {"</s>", "<|end_of_text|>", "<|endoftext|>", NULL};
    char path[4096];
    f->tokenizer->begin = find_usual(f, begins);
    f->tokenizer->end = find_usual(f, ends);
    const char *slash = strrchr(f->path, '/');
    const int folder = slash ? (int)(slash - f->path) + 1 : 0;
    if (snprintf(path, sizeof path, "%.*stokenizer_config.json", folder, f->path) >= (int)sizeof path) return;
    struct sl_contents contents = {0};
    if (sl_contents_open(&contents, path, NULL)) return;
    const size_t mark = sl_contents_mark(&contents);
    json_t *config = json_loadb(contents.bytes ? (char *)contents.bytes + mark : "", contents.count - mark, 0, NULL);
    f->tokenizer->begin = find_named(f, config, "bos_token");
    f->tokenizer->end = find_named(f, config, "eos_token");
    json_decref(config);
    sl_contents_close(&contents);
}

static int read_root(const struct file *f, const json_t *root) {
    const json_t *model = json_object_get(root, "model");
    json_t *token;
    size_t i;
    const char *type = text_of(model, "type");
    if (!json_is_object(model) || (*type && strcmp(type, "BPE") != 0))
        return unsupported(f, "a model of the type", type);
    f->tokenizer->pieces = json_is_true(json_object_get(model, "byte_fallback"));
    if (f->tokenizer->pieces && f->tokenizer->pattern)
        return sl_error_set(f->error, SL_BAD_INPUT, "%s: the tokenizer divides text itself: name no pattern", f->path);
    SL_TRY(read_normalizer(f, json_object_get(root, "normalizer")));
    SL_TRY(read_pre_tokenizer(f, json_object_get(root, "pre_tokenizer")));
    json_array_foreach(json_object_get(root, "added_tokens"), i, token) SL_TRY(read_special(f, token));
    SL_TRY(read_model(f, model));
    read_config(f);
    return SL_OK;
}

int sl_read_tokenizer_json(struct sl_tokenizer *t, const struct sl_contents *contents, const char *path,
                           struct sl_error *error) {
    const struct file file = {t, path, error};
    json_error_t wrong;
    json_t *root = json_loadb(contents->bytes, contents->count, JSON_ALLOW_NUL, &wrong);
    if (!root) return sl_error_set(error, SL_BAD_INPUT, "%s: line %d: %s", path, wrong.line, wrong.text);
    const int status = read_root(&file, root);
    json_decref(root);
    return status;
}
