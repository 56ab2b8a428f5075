/* publish_tokenizer.c - writes a tokenizer of any source in Hugging Face's format. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/files/json_file_internal.h"
#include "layers/formats/tokenizers/formats_internal.h"

static const char mark[] = "\xe2\x96\x81"; /* U+2581, SentencePiece's space */

/* ---- tokens ---- */

/* TOKEN's name in tokenizer.json. NULL: it is not UTF-8, or memory is short. */
static json_t *name_of(const struct sl_tokenizer *t, int32_t token) {
    char text[3 * SL_LONGEST_TOKEN];
    const struct sl_token *about = &t->token[token];
    const char *bytes = sl_vocabulary_bytes(t, token);
    size_t count = about->length;
    if (about->kind == SL_TOKEN_BYTE)
        count = sl_spell_byte_piece((unsigned char)*bytes, text);
    else if (about->kind == SL_TOKEN_TEXT)
        count = t->pieces ? sl_spell_spaces(bytes, count, text) : sl_spell_bytes(bytes, count, text);
    else
        memcpy(text, bytes, count);
    return json_stringn(text, count);
}

/* Whether TOKEN gets its name, if two tokens have the same: the one produced by encoding gets it. */
static bool keeps_name(const struct sl_tokenizer *t, const json_t *vocabulary, const char *name, int32_t token) {
    if (t->token[token].kind != SL_TOKEN_TEXT) return !json_object_get(vocabulary, name);
    return sl_vocabulary_find(t, SL_TOKEN_TEXT, sl_vocabulary_bytes(t, token), t->token[token].length) == token;
}

static json_t *vocabulary_of(const struct sl_tokenizer *t) {
    json_t *vocabulary = json_object();
    for (int32_t token = 0; token < t->count && vocabulary; token++) {
        if (t->token[token].kind == SL_TOKEN_NONE) continue;
        json_t *name = name_of(t, token);
        const char *text = json_string_value(name);
        if (!name ||
            (keeps_name(t, vocabulary, text, token) && json_object_set_new(vocabulary, text, json_integer(token)))) {
            json_decref(vocabulary);
            vocabulary = NULL;
        }
        json_decref(name);
    }
    return vocabulary;
}

/* Returns JSON if it is COMPLETE; otherwise frees it and returns NULL. */
static json_t *if_complete(json_t *json, bool complete) {
    if (complete) return json;
    json_decref(json);
    return NULL;
}

static json_t *special_of(const struct sl_tokenizer *t) {
    json_t *special = json_array();
    bool complete = special;
    for (int32_t token = 0; token < t->count; token++)
        if (sl_vocabulary_is_found(t, token))
            complete &= !json_array_append_new(special, json_pack("{si so sb sb sb sb sb}", "id", token, "content",
                                                                  name_of(t, token), "single_word", 0, "lstrip", 0,
                                                                  "rstrip", 0, "normalized", t->token[token].normalized,
                                                                  "special", t->token[token].kind == SL_TOKEN_SPECIAL));
    return if_complete(special, complete);
}

/* ---- merges ---- */

/* Orders merges by rank; pieces may have equal ranks, and are then ordered by their parts. */
static int earlier(const void *left, const void *right) {
    const struct sl_merge *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return (a->right > b->right) - (a->right < b->right);
}

static json_t *merge_of(const struct sl_tokenizer *t, const struct sl_merge *merge) {
    json_t *left = name_of(t, merge->left), *right = name_of(t, merge->right);
    json_t *both = json_sprintf("%s %s", json_string_value(left), json_string_value(right));
    json_decref(left);
    json_decref(right);
    return both;
}

static json_t *merges_of(const struct sl_tokenizer *t) {
    struct sl_merge *sorted = malloc((t->merges + 1) * sizeof *sorted);
    json_t *merges = sorted ? json_array() : NULL;
    size_t count = 0;
    if (!sorted) return NULL;
    for (size_t i = 0; i < t->slots; i++)
        if (t->merge[i].left >= 0) sorted[count++] = t->merge[i];
    qsort(sorted, count, sizeof *sorted, earlier);
    for (size_t i = 0; i < count && merges; i++) {
        merges = if_complete(merges, !json_array_append_new(merges, merge_of(t, &sorted[i])));
    }
    free(sorted);
    return merges;
}

/* ---- tokenizer.json ---- */

static json_t *replacement(const char *from, const char *to) {
    return json_pack("{ss s{ss} ss}", "type", "Replace", "pattern", "String", from, "content", to);
}

static json_t *normalizer_of(const struct sl_tokenizer *t) {
    if (!t->pieces) return t->nfc ? json_pack("{ss}", "type", "NFC") : json_null();
    if (t->prefix != SL_PREFIX_PREPEND) return replacement(" ", mark);
    return json_pack("{ss s[{ss ss} o]}", "type", "Sequence", "normalizers", "type", "Prepend", "prepend", mark,
                     replacement(" ", mark));
}

static json_t *bytes_step(bool divides) {
    return json_pack("{ss sb sb sb}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     divides);
}

/* The pre-tokenizer. A pattern without a source is built from GPT-2's pattern and single digits. */
static json_t *pre_tokenizer_of(const struct sl_tokenizer *t) {
    if (t->pieces && (t->prefix == SL_PREFIX_FIRST || t->prefix == SL_PREFIX_ALWAYS))
        return json_pack("{ss ss ss sb}", "type", "Metaspace", "replacement", mark, "prepend_scheme",
                         t->prefix == SL_PREFIX_FIRST ? "first" : "always", "split", 0);
    if (t->pieces) return json_null();
    const char *source = t->pattern->source;
    if (!source)
        return json_pack("{ss s[{ss sb} o]}", "type", "Sequence", "pretokenizers", "type", "Digits",
                         "individual_digits", 1, bytes_step(true));
    if (t->pattern == sl_pattern_named("gpt2")) return bytes_step(true);
    return json_pack("{ss s[{ss s{ss} ss sb} o]}", "type", "Sequence", "pretokenizers", "type", "Split", "pattern",
                     "Regex", source, "behavior", "Isolated", "invert", 0, bytes_step(false));
}

static json_t *decoder_of(const struct sl_tokenizer *t) {
    if (!t->pieces) return bytes_step(true);
    json_t *steps = json_pack("[o {ss} {ss}]", replacement(mark, " "), "type", "ByteFallback", "type", "Fuse");
    const bool complete = !t->prefix || !json_array_append_new(steps, json_pack("{ss ss si si}", "type", "Strip",
                                                                                "content", " ", "start", 1, "stop", 0));
    return json_pack("{ss so}", "type", "Sequence", "decoders", if_complete(steps, complete));
}

static json_t *name_or_null(const struct sl_tokenizer *t, int32_t token) {
    return token >= 0 ? name_of(t, token) : json_null();
}

static json_t *model_of(const struct sl_tokenizer *t) {
    return json_pack("{ss sn so sn sn sb sb sb so so}", "type", "BPE", "dropout", "unk_token",
                     name_or_null(t, t->unknown), "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                     "byte_fallback", t->pieces, "ignore_merges", t->whole, "vocab", vocabulary_of(t), "merges",
                     merges_of(t));
}

static json_t *root_of(const struct sl_tokenizer *t) {
    return json_pack("{ss sn sn so so so sn so so}", "version", "1.0", "truncation", "padding", "added_tokens",
                     special_of(t), "normalizer", normalizer_of(t), "pre_tokenizer", pre_tokenizer_of(t),
                     "post_processor", "decoder", decoder_of(t), "model", model_of(t));
}

/* ---- tokenizer_config.json ---- */

static json_t *config_of(const struct sl_tokenizer *t, const char *chat) {
    json_t *config =
        json_pack("{ss so so sb}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token", name_or_null(t, t->begin),
                  "eos_token", name_or_null(t, t->end), "clean_up_tokenization_spaces", 0);
    return if_complete(config, !chat || !json_object_set_new(config, "chat_template", json_string(chat)));
}

/* Checks names: in JSON they must be UTF-8 without zeros. */
static int check_names(const struct sl_tokenizer *t, struct sl_error *error) {
    for (int32_t token = 0; token < t->count; token++) {
        if (t->token[token].kind == SL_TOKEN_NONE) continue;
        json_t *name = name_of(t, token);
        const bool named = name && strlen(json_string_value(name)) == json_string_length(name);
        json_decref(name);
        if (!named)
            return sl_error_set(error, SL_BAD_INPUT, "token %d cannot be written to a tokenizer.json: it is no UTF-8",
                                token);
    }
    return SL_OK;
}

int sl_tokenizer_publish(const struct sl_tokenizer *t, const char *folder, const char *chat, struct sl_error *error) {
    SL_TRY(check_names(t, error));
    SL_TRY(sl_json_write(root_of(t), folder, "tokenizer.json", error));
    return sl_json_write(config_of(t, chat), folder, "tokenizer_config.json", error);
}
