/* patterns.c - the patterns of published models, for PCRE2.
 *
 * White space is written out, because PCRE2's \s also matches U+180E. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "layers/formats/tokenizers/patterns_internal.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/tokenizers/tokenizer.h"

#define SPACES "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S "[" SPACES "]"
#define OTHER "[^" SPACES "\\p{L}\\p{N}]"
#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA(digits)                                                                                                  \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?" OTHER "+[\\r\\n]*|" S "*[\\r\\n]+|" S "+(?![^" SPACES   \
                "])|" S "+"
#define LLAMA_SOURCE(digits)                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                               \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct sl_pattern patterns[] = {
    {"gpt2",
     "|gpt-2|gpt2|",
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?" OTHER "+|" S "+(?![^" SPACES "])|" S "+",
     false,
     {"<|endoftext|>"},
     NULL,
     0,
     0},
    {"llama3",
     "|llama-bpe|llama3|llama-v3|",
     LLAMA_SOURCE("\\p{N}{1,3}"),
     LLAMA("\\p{N}{1,3}"),
     false,
     {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
      "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
      "<|eot_id|>", "<|python_tag|>", "<|image|>"},
     "<|reserved_special_token_%d|>",
     2,
     244},
    {"qwen2",
     "|qwen2|",
     LLAMA_SOURCE("\\p{N}"),
     LLAMA("\\p{N}"),
     true,
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
     "<|extra_%d|>",
     0,
     205},
    /* Each digit is a word; text between digits is divided as by GPT-2. */
    {"smollm",
     "|smollm|",
     NULL,
     "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?" OTHER "+|" S "+(?![^" SPACES "\\p{N}])|" S "+",
     false,
     {"<|endoftext|>"},
     NULL,
     0,
     0},
};

enum { PATTERNS = sizeof patterns / sizeof *patterns };

const struct sl_pattern *sl_pattern_named(const char *name) {
    for (int i = 0; i < PATTERNS; i++)
        if (!strcmp(patterns[i].name, name)) return &patterns[i];
    return NULL;
}

const struct sl_pattern *sl_pattern_aliased(const char *alias, size_t bytes) {
    char word[40];
    if (bytes + 3 > sizeof word) return NULL;
    snprintf(word, sizeof word, "|%.*s|", (int)bytes, alias);
    for (int i = 0; i < PATTERNS; i++)
        if (strstr(patterns[i].alias, word)) return &patterns[i];
    return NULL;
}

const struct sl_pattern *sl_pattern_of(const char *source) {
    for (int i = 0; i < PATTERNS; i++)
        if (patterns[i].source && !strcmp(patterns[i].source, source)) return &patterns[i];
    return NULL;
}

char *sl_pattern_names(char text[120]) {
    *text = 0;
    for (int i = 0; i < PATTERNS; i++)
        snprintf(text + strlen(text), 120 - strlen(text), "%s%s", i ? ", " : "", patterns[i].name);
    return text;
}

const char *sl_tokenizer_pattern(int i) { return i >= 0 && i < PATTERNS ? patterns[i].name : NULL; }

/* ---- matching ---- */

struct sl_words {
    pcre2_code *code;
    bool compiled; /* to machine code */
};

int sl_words_compile(struct sl_words **words, const struct sl_pattern *pattern, struct sl_error *error) {
    int number;
    PCRE2_SIZE offset;
    *words = calloc(1, sizeof **words);
    if (!*words) return sl_error_set(error, SL_FAILED, "out of memory");
    (*words)->code = pcre2_compile((PCRE2_SPTR)pattern->expression, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &number, &offset, NULL);
    if (!(*words)->code)
        return sl_error_set(error, SL_FAILED, "the pattern %s cannot be compiled: error %d of PCRE2", pattern->name,
                            number);
    (*words)->compiled = !pcre2_jit_compile((*words)->code, PCRE2_JIT_COMPLETE); /* if the system allows it */
    return SL_OK;
}

void sl_words_free(struct sl_words *words) {
    if (!words) return;
    pcre2_code_free(words->code);
    free(words);
}

struct sl_matcher {
    const struct sl_words *words;
    pcre2_match_data *data;
};

struct sl_matcher *sl_matcher_new(const struct sl_words *words) {
    struct sl_matcher *matcher = calloc(1, sizeof *matcher);
    if (!matcher) return NULL;
    matcher->words = words;
    matcher->data = pcre2_match_data_create(1, NULL);
    if (matcher->data) return matcher;
    free(matcher);
    return NULL;
}

void sl_matcher_free(struct sl_matcher *matcher) {
    if (!matcher) return;
    pcre2_match_data_free(matcher->data);
    free(matcher);
}

size_t sl_matcher_next(struct sl_matcher *matcher, const char *text, size_t bytes, size_t at) {
    const struct sl_words *words = matcher->words;
    const int found =
        words->compiled
            ? pcre2_jit_match(words->code, (PCRE2_SPTR)text, bytes, at, 0, matcher->data, NULL)
            : pcre2_match(words->code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, matcher->data, NULL);
    if (found < 0) return bytes - at;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(matcher->data);
    return range[0] > at ? range[0] - at : range[1] - at; /* the patterns leave no gaps */
}
