/* test_complexity_tokenizers.c - texts are encoded in a time that grows as they do, however they are divided into
 * words. */
#include "tests/rigs/complexity.h"

#include "layers/formats/tokenizers/tokenizer.h"

static struct sl_tokenizer *tokenizer;
static struct sl_encoder *encoder;
static struct sl_token_list list;
static char *text;

/* The row's argument chooses the tokenizer; its text is repeated. */
static void prepare(const struct complexity_row *row, int n) {
    static const char *const files[] = {"gpt2.json", "pieces.model", "qwen2.json"};
    char path[300];
    const size_t count = strlen(row->about);
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
    snprintf(path, sizeof path, SL_TEST_DATA "/tokenizers/%s", files[row->argument]);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
    assert_int_equal(sl_encoder_open(&encoder, tokenizer, NULL), SL_OK);
    text = realloc(text, (size_t)n);
    assert_non_null(text);
    for (size_t i = 0; i < (size_t)n; i++) text[i] = ((const char *)row->about)[i % count];
}

static void encode(const struct complexity_row *row, int n) {
    (void)row;
    list.count = 0;
    assert_int_equal(sl_encode(encoder, text, (size_t)n, true, &list, NULL), SL_OK);
}

static struct complexity_row rows[] = {
    {"bytes: words", 1 << 15, prepare, encode, "the quick brown fox ", 0},
    {"bytes: one word", 1 << 14, prepare, encode, "abcabd", 0},
    {"bytes: spaces", 1 << 15, prepare, encode, " ", 0},
    {"bytes: beginnings of special tokens", 1 << 15, prepare, encode, "<|endoftext", 0},
    {"bytes: none of a character", 1 << 14, prepare, encode, "\xe2\x96", 0},
    {"pieces: words", 1 << 15, prepare, encode, "the quick brown fox ", 1},
    {"pieces: one word", 1 << 14, prepare, encode, "thequickbrownfox", 1},
    {"pieces: characters without a piece", 1 << 14, prepare, encode, "\xe2\x96\x81", 1},
    {"normalized: marks of one letter", 1 << 13, prepare, encode, "\xcc\x81\xcc\xa7", 2},
    {"normalized: accents", 1 << 14, prepare, encode, "e\xcc\x81", 2},
};

int main(void) {
    const int failed = complexity_run("tokenizers", rows, sizeof rows / sizeof *rows);
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
    sl_token_list_free(&list);
    free(text);
    return failed;
}
