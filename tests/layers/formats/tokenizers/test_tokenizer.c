/* test_tokenizer.c - tokens equal the reference libraries' (reference.py), and decoding gives the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/formats/tokenizers/tokenizer.h"
#include "tests/rigs/folder.h"

static const char *const files[] = {"gpt2.json",    "qwen2.json",   "smollm.gguf",
                                    "llama3.ranks", "pieces.model", "pieces.json"};
enum { FILES = sizeof files / sizeof *files };

static const char *pattern_of(const char *file) { return strstr(file, "ranks") ? "llama3" : NULL; }

static struct sl_tokenizer *open_file(const char *file) {
    char path[300];
    struct sl_tokenizer *tokenizer;
    struct sl_error error = {0};
    snprintf(path, sizeof path, SL_TEST_DATA "/tokenizers/%s", file);
    if (sl_tokenizer_open(&tokenizer, path, pattern_of(file), &error)) fail_msg("%s", error.message);
    return tokenizer;
}

static struct sl_encoder *encoder_of(const struct sl_tokenizer *tokenizer) {
    struct sl_encoder *encoder;
    assert_int_equal(sl_encoder_open(&encoder, tokenizer, NULL), SL_OK);
    return encoder;
}

/* ---- the references ---- */

static void expect_case(struct sl_encoder *encoder, const json_t *object) {
    const json_t *tokens = json_object_get(object, "tokens"), *text = json_object_get(object, "text");
    struct sl_token_list list = {0};
    assert_int_equal(sl_encode(encoder, json_string_value(text), json_string_length(text), true, &list, NULL), SL_OK);
    bool same = list.count == json_array_size(tokens);
    for (size_t i = 0; same && i < list.count; i++)
        same = list.token[i] == json_integer_value(json_array_get(tokens, i));
    if (!same)
        fail_msg("%s: \"%s\" has other tokens", json_string_value(json_object_get(object, "tokenizer")),
                 json_string_value(text));
    sl_token_list_free(&list);
}

/* Returns how many cases there are of FILE. */
static int expect_cases(const struct sl_tokenizer *tokenizer, const char *name) {
    char line[4096];
    int cases = 0;
    struct sl_encoder *encoder = encoder_of(tokenizer);
    FILE *file = fopen(SL_TEST_DATA "/tokenizers/cases.jsonl", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(object);
        if (!strcmp(json_string_value(json_object_get(object, "tokenizer")), name)) {
            /* ranks are compared without special tokens; here they are after them */
            const bool special = strstr(json_string_value(json_object_get(object, "text")), "<|") != NULL;
            if (!special || !pattern_of(name)) expect_case(encoder, object), cases++;
        }
        json_decref(object);
    }
    fclose(file);
    sl_encoder_close(encoder);
    return cases;
}

static void test_references(void **state) {
    (void)state;
    int cases = 0;
    for (int f = 0; f < FILES; f++) {
        struct sl_tokenizer *tokenizer = open_file(files[f]);
        cases += expect_cases(tokenizer, files[f]);
        sl_tokenizer_close(tokenizer);
    }
    assert_int_equal(cases, 107);
}

/* ---- round trips ---- */

static void expect_round_trip(struct sl_encoder *encoder, const struct sl_tokenizer *tokenizer, const char *text,
                              size_t bytes, bool special) {
    struct sl_token_list list = {0};
    char *back;
    size_t count;
    assert_int_equal(sl_encode(encoder, text, bytes, special, &list, NULL), SL_OK);
    assert_int_equal(sl_decode(tokenizer, list.token, list.count, &back, &count, NULL), SL_OK);
    assert_int_equal(count, bytes);
    assert_memory_equal(back, text, bytes);
    free(back);
    sl_token_list_free(&list);
}

/* Makes the text ASCII: with NFC only normalized text is decoded unchanged, and ASCII is normalized. */
static void make_ascii(char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) text[i] &= 0x7f;
}

/* Bytes of all kinds, with characters, spaces and special tokens among them. */
static size_t draw_text(char *text, size_t most) {
    static const char *const pieces[] = {
        " ",   "  ",  "a",    "the", "\n",       "\xe2\x96\x81", "\xf0\x9f\x98\x80", "<|endoftext|>",
        "<s>", "'ll", "\r\n", "12",  "\xe2\x96", "\xc3\xa9"};
    size_t bytes = 0;
    while (bytes + 16 < most && rand() % 40) {
        if (rand() % 3) {
            const char *piece = pieces[(size_t)rand() % (sizeof pieces / sizeof *pieces)];
            memcpy(text + bytes, piece, strlen(piece));
            bytes += strlen(piece);
        } else {
            text[bytes++] = (char)rand();
        }
    }
    return bytes;
}

static void test_round_trips(void **state) {
    (void)state;
    char text[400];
    srand(5);
    for (int f = 0; f < FILES; f++) {
        struct sl_tokenizer *tokenizer = open_file(files[f]);
        struct sl_encoder *encoder = encoder_of(tokenizer);
        const bool normalizes = !strcmp(files[f], "qwen2.json");
        for (int b = 0; b < 256; b++) text[b] = (char)b;
        for (int i = 0; i < 2000; i++) {
            const size_t bytes = i ? draw_text(text, sizeof text) : 256;
            if (normalizes) make_ascii(text, bytes);
            expect_round_trip(encoder, tokenizer, text, bytes, i % 2);
        }
        sl_encoder_close(encoder);
        sl_tokenizer_close(tokenizer);
    }
}

/* The encoder's cache of words changes nothing: a new encoder gives a text the same tokens. */
static void test_memory(void **state) {
    (void)state;
    char text[400];
    srand(6);
    struct sl_tokenizer *tokenizer = open_file("gpt2.json");
    struct sl_encoder *old = encoder_of(tokenizer);
    for (int i = 0; i < 300; i++) {
        struct sl_token_list lists[2] = {{0}, {0}};
        struct sl_encoder *fresh = encoder_of(tokenizer);
        const size_t bytes = draw_text(text, sizeof text);
        assert_int_equal(sl_encode(old, text, bytes, true, &lists[0], NULL), SL_OK);
        assert_int_equal(sl_encode(fresh, text, bytes, true, &lists[1], NULL), SL_OK);
        assert_int_equal(lists[0].count, lists[1].count);
        if (lists[0].count) assert_memory_equal(lists[0].token, lists[1].token, lists[0].count * sizeof(int32_t));
        sl_encoder_close(fresh);
        sl_token_list_free(&lists[0]);
        sl_token_list_free(&lists[1]);
    }
    sl_encoder_close(old);
    sl_tokenizer_close(tokenizer);
}

/* ---- special tokens ---- */

static void test_special(void **state) {
    (void)state;
    static const char text[] = "a<|end_of_text|>b";
    struct sl_tokenizer *tokenizer = open_file("llama3.ranks");
    struct sl_encoder *encoder = encoder_of(tokenizer);
    struct sl_token_list list = {0};
    const int32_t end = sl_token_find(tokenizer, "<|end_of_text|>", 15);
    assert_int_equal(end, sl_token_end(tokenizer));
    assert_int_equal(sl_token_begin(tokenizer), end - 1);
    assert_int_equal(sl_encode(encoder, text, strlen(text), true, &list, NULL), SL_OK);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.token[1], end);
    list.count = 0;
    assert_int_equal(sl_encode(encoder, text, strlen(text), false, &list, NULL), SL_OK);
    assert_true(list.count > 3);
    for (size_t i = 0; i < list.count; i++) assert_int_not_equal(list.token[i], end);
    /* the last of a series, and the length of the vocabulary */
    assert_int_equal(sl_token_find(tokenizer, "<|reserved_special_token_245|>", 30),
                     sl_tokenizer_vocabulary(tokenizer) - 1);
    sl_token_list_free(&list);
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
}

/* ---- threads ---- */

static void *encode_much(void *arg) {
    char text[400];
    struct sl_encoder *encoder;
    struct sl_token_list list = {0};
    if (sl_encoder_open(&encoder, arg, NULL)) return arg;
    for (int i = 0; i < 200; i++)
        sl_encode(encoder, text, (size_t)snprintf(text, sizeof text, "%d the fox", i), true, &list, NULL);
    const size_t count = list.count;
    sl_token_list_free(&list);
    sl_encoder_close(encoder);
    return (void *)count;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t thread[3];
    void *count[3];
    struct sl_tokenizer *tokenizer = open_file("gpt2.json");
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, encode_much, tokenizer), 0);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], &count[i]);
    assert_true(count[0] == count[1] && count[1] == count[2] && (size_t)count[0] > 600);
    sl_tokenizer_close(tokenizer);
}

/* ---- refusals ---- */

static char folder[FOLDER];

static int make_files(void **state) {
    (void)state;
    return make_folder(folder, "test_tokenizer") ? 0 : -1;
}

static int remove_files(void **state) {
    (void)state;
    static const char *const made[] = {"file", "tokenizer.json", "tokenizer_config.json"};
    char path[FOLDER + 30];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void expect_refusal(const char *contents, size_t bytes, const char *pattern, const char *line) {
    char path[FOLDER + 20];
    struct sl_tokenizer *tokenizer;
    struct sl_error error = {0};
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(contents, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, pattern, &error), SL_BAD_INPUT);
    assert_null(tokenizer);
    if (!strstr(error.message, line)) fail_msg("\"%s\" says nothing of \"%s\"", error.message, line);
}

#define MODEL(fields) "{\"model\":{\"type\":\"BPE\"," fields "},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}"

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *contents, *pattern, *line;
    } row[] = {
        {"", NULL, "the file is empty"},
        {"{", NULL, "line 1"},
        {"{}", NULL, "a model of the type"},
        {"{\"model\":{\"type\":\"Unigram\"}}", NULL, "\"Unigram\" is not supported"},
        {MODEL("\"vocab\":1"), NULL, "no object \"vocab\""},
        {MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), NULL, "a token of number -1: allowed are 0 to 4194303"},
        {MODEL("\"vocab\":{\"a\":9999999999},\"merges\":[]"), NULL, "a token of number 9999999999"},
        {MODEL("\"vocab\":{\"a\":\"b\"},\"merges\":[]"), NULL, "the number of the token \"a\" is no number"},
        {MODEL("\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]"), NULL, "two tokens have the number 1"},
        {MODEL("\"vocab\":{\"a\":1,\"b\":2},\"merges\":[\"a b\"]"), NULL, "merge 0 makes no token"},
        {MODEL("\"vocab\":{\"a\":1},\"merges\":[\"a c\"]"), NULL, "merge 0 is of texts that are no tokens"},
        {MODEL("\"vocab\":{\"a\":1},\"merges\":[7]"), NULL, "merge 0 is not two texts"},
        {MODEL("\"vocab\":{\"a\":1},\"merges\":[]"), NULL, "stands for the byte 0x00"},
        {MODEL("\"dropout\":0.1,\"vocab\":{},\"merges\":[]"), NULL, "model \"dropout\" is not supported"},
        {"{\"model\":{\"type\":\"BPE\"},\"normalizer\":{\"type\":\"Lowercase\"}}", NULL, "normalizer \"Lowercase\""},
        {"{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", NULL,
         "pre_tokenizer \"Whitespace\""},
        {"{\"model\":{},\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"x\"}}"
         "}",
         NULL, "pattern \"x\" is not supported"},
        {"{\"model\":{},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"id\":0,\"content\":\"a\","
         "\"lstrip\":true}]}",
         NULL, "\"lstrip\" is not supported"},
        {"QQ== 0\n", NULL, "name the pattern, one of gpt2, llama3, qwen2, smollm"},
        {"QQ== 0\n", "gpt3", "no pattern is called \"gpt3\": choose gpt2"},
        {"QQ== 0\n", "gpt2", "stands for the byte 0x00"},
        {"QQ=0\n", "gpt2", "line 1 is not a token in base64"},
        {"QQ== 0\nQQ== x\n", "gpt2", "line 2 is not a token in base64"},
        {"QQ== 0\nQg== 0\n", "gpt2", "two tokens have the number 0"},
        {"GGUF", NULL, "another version"},
        {"GGUF\3", NULL, "another version"},
        {"\n\3\n\1a", NULL, "is not supported: its model is not BPE"},
        {"\n\7\n\1a", NULL, "malformed or truncated model of SentencePiece"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        expect_refusal(row[i].contents, strlen(row[i].contents), row[i].pattern, row[i].line);
    struct sl_tokenizer *tokenizer;
    struct sl_error error;
    assert_int_equal(sl_tokenizer_open(&tokenizer, "/nowhere", NULL, &error), SL_BAD_INPUT);
    assert_int_equal(sl_tokenizer_open(&tokenizer, folder, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "neither tokenizer.json nor tokenizer.model"));
}

/* Each beginning of a file is refused, with one line, or is a tokenizer. */
static void test_truncated(void **state) {
    (void)state;
    static char bytes[20000];
    char path[FOLDER + 20], whole[300];
    for (int f = 0; f < FILES; f++) {
        snprintf(whole, sizeof whole, SL_TEST_DATA "/tokenizers/%s", files[f]);
        FILE *file = fopen(whole, "rb");
        assert_non_null(file);
        const size_t count = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        for (size_t cut = 0; cut < count; cut += 211) {
            struct sl_tokenizer *tokenizer;
            struct sl_error error = {0};
            snprintf(path, sizeof path, "%s/file", folder);
            file = fopen(path, "wb");
            assert_int_equal(fwrite(bytes, 1, cut, file), cut);
            fclose(file);
            const int status = sl_tokenizer_open(&tokenizer, path, pattern_of(files[f]), &error);
            assert_true(status == SL_OK || (status == SL_BAD_INPUT && error.message[0]));
            sl_tokenizer_close(tokenizer);
        }
    }
}

static void test_decode(void **state) {
    (void)state;
    struct sl_tokenizer *tokenizer = open_file("gpt2.json");
    struct sl_error error = {0};
    char *text;
    size_t bytes;
    assert_int_equal(sl_decode(tokenizer, (int32_t[]){1, 2, 410}, 3, &text, &bytes, &error), SL_BAD_INPUT);
    assert_string_equal(error.message, "token number 2 is 410, which the tokenizer does not have: it has 410");
    assert_int_equal(sl_decode(tokenizer, (int32_t[]){-1}, 1, &text, &bytes, &error), SL_BAD_INPUT);
    assert_int_equal(sl_decode(tokenizer, NULL, 0, &text, &bytes, &error), SL_OK);
    assert_int_equal(bytes, 0);
    free(text);
    sl_tokenizer_close(tokenizer);
}

/* ---- as Hugging Face's libraries open them ---- */

static void expect_same_tokens(struct sl_encoder *encoder, struct sl_encoder *published) {
    char text[400];
    for (int i = 0; i < 500; i++) {
        const size_t bytes = draw_text(text, sizeof text);
        struct sl_token_list list = {0}, same = {0};
        assert_int_equal(sl_encode(encoder, text, bytes, true, &list, NULL), SL_OK);
        assert_int_equal(sl_encode(published, text, bytes, true, &same, NULL), SL_OK);
        assert_int_equal(list.count, same.count);
        if (list.count) assert_memory_equal(list.token, same.token, list.count * sizeof *list.token);
        sl_token_list_free(&list);
        sl_token_list_free(&same);
    }
}

static void test_published(void **state) {
    (void)state;
    int cases = 0;
    srand(7);
    for (int f = 0; f < FILES; f++) {
        struct sl_tokenizer *tokenizer = open_file(files[f]), *published;
        struct sl_error error = {0};
        assert_int_equal(sl_tokenizer_publish(tokenizer, folder, "{{ a template }}", &error), SL_OK);
        if (sl_tokenizer_open(&published, folder, NULL, &error)) fail_msg("%s: %s", files[f], error.message);
        assert_int_equal(sl_tokenizer_vocabulary(published), sl_tokenizer_vocabulary(tokenizer));
        assert_int_equal(sl_token_begin(published), sl_token_begin(tokenizer));
        assert_int_equal(sl_token_end(published), sl_token_end(tokenizer));
        cases += expect_cases(published, files[f]);
        struct sl_encoder *encoder = encoder_of(tokenizer), *other = encoder_of(published);
        expect_same_tokens(encoder, other);
        sl_encoder_close(encoder);
        sl_encoder_close(other);
        sl_tokenizer_close(tokenizer);
        sl_tokenizer_close(published);
    }
    assert_int_equal(cases, 107);
    struct sl_tokenizer *tokenizer = open_file("gpt2.json");
    assert_int_equal(sl_tokenizer_publish(tokenizer, "nowhere/at/all", NULL, NULL), SL_BAD_INPUT);
    sl_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references), cmocka_unit_test(test_round_trips), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_special),    cmocka_unit_test(test_threads),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_decode),      cmocka_unit_test(test_published),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tokenizers", tests, make_files, remove_files);
}
