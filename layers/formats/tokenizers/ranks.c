/* ranks.c - reads tiktoken's files: each line has a token in base64, a blank, and its rank, which is its number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/tokenizers/formats_internal.h"

/* Value of a base64 digit; -1: it is not one. */
static int digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes COUNT base64 characters, and returns the number of bytes; -1 if they are malformed or too many. */
static int read_base64(const char *text, size_t count, char *bytes) {
    int written = 0, bits = 0;
    uint32_t value = 0;
    if (count % 4) return -1;
    while (count && text[count - 1] == '=' && written < 2) count--, written++; /* number of missing digits */
    written = 0;
    for (size_t i = 0; i < count; i++) {
        if (digit(text[i]) < 0) return -1;
        value = value << 6 | (uint32_t)digit(text[i]);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        if (written == SL_LONGEST_TOKEN) return -1;
        bytes[written++] = (char)(value >> bits);
    }
    return written;
}

static int read_line(struct sl_tokenizer *t, const char *line, size_t count, int number, const char *path,
                     struct sl_error *error) {
    char bytes[SL_LONGEST_TOKEN];
    const char *blank = memchr(line, ' ', count);
    const int length = blank ? read_base64(line, (size_t)(blank - line), bytes) : -1;
    int64_t rank = 0;
    size_t at = blank ? (size_t)(blank - line) + 1 : count;
    bool good = length > 0 && at < count && count - at < 10;
    for (; good && at < count; at++) {
        good = line[at] >= '0' && line[at] <= '9';
        rank = 10 * rank + (line[at] - '0');
    }
    if (!good)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: line %d is not a token in base64, a blank and its rank; nor is this "
                            "the tokenizer.json, GGUF file or SentencePiece model of a tokenizer",
                            path, number);
    return sl_vocabulary_add(t, rank, bytes, (size_t)length, SL_TOKEN_TEXT, path, error);
}

static int add_special(struct sl_tokenizer *t, const char *name, const char *path, struct sl_error *error) {
    return sl_vocabulary_add(t, t->count, name, strlen(name), SL_TOKEN_SPECIAL, path, error);
}

static int add_specials(struct sl_tokenizer *t, const char *path, struct sl_error *error) {
    const struct sl_pattern *pattern = t->pattern;
    for (int i = 0; pattern->special[i]; i++) SL_TRY(add_special(t, pattern->special[i], path, error));
    for (int i = 0; i < pattern->count; i++) {
        char name[64];
        const char *number = strchr(pattern->series, '%'); /* "%d" */
        snprintf(name, sizeof name, "%.*s%d%s", (int)(number - pattern->series), pattern->series, pattern->first + i,
                 number + 2);
        SL_TRY(add_special(t, name, path, error));
    }
    return SL_OK;
}

int sl_read_tokenizer_ranks(struct sl_tokenizer *t, const struct sl_contents *contents, const char *path,
                            struct sl_error *error) {
    const char *text = contents->bytes;
    size_t left = contents->count;
    char names[120];
    for (int number = 1; left; number++) {
        const char *newline = memchr(text, '\n', left);
        const size_t count = newline ? (size_t)(newline - text) : left;
        const size_t ended = count && text[count - 1] == '\r' ? count - 1 : count;
        if (ended) SL_TRY(read_line(t, text, ended, number, path, error));
        text += newline ? count + 1 : count;
        left -= newline ? count + 1 : count;
    }
    if (!t->count) return sl_error_set(error, SL_BAD_INPUT, "%s: the file is empty: it has no tokens", path);
    if (!t->pattern)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: ranks do not say how text is divided into words: name the pattern, "
                            "one of %s",
                            path, sl_pattern_names(names));
    t->nfc = t->pattern->nfc;
    t->whole = true; /* as tiktoken does */
    uint32_t *rank = malloc((size_t)t->count * sizeof *rank);
    if (!rank) return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
    for (int i = 0; i < t->count; i++) rank[i] = (uint32_t)i;
    const int status = sl_vocabulary_merge_all(t, rank, path, error);
    free(rank);
    if (!status) SL_TRY(add_specials(t, path, error));
    t->begin = sl_vocabulary_find(t, SL_TOKEN_SPECIAL, "<|begin_of_text|>", 17);
    t->end = sl_vocabulary_find(t, SL_TOKEN_SPECIAL, "<|end_of_text|>", 15);
    if (t->end < 0) t->end = sl_vocabulary_find(t, SL_TOKEN_SPECIAL, "<|endoftext|>", 13);
    return status;
}
