/* test_tokenizer_added.c - tokens found literally in a text, special or not, and spaces before the text between them:
 * equal to the tokens of tokenizers 0.23.3 (reference.py, added.jsonl). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/formats/tokenizers/tokenizer.h"
#include "tests/rigs/folder.h"

static char folder[FOLDER], file[FOLDER + 30];

/* A tokenizer of tests/data, with other fields; *ADDED: its list of added tokens. */
static struct sl_tokenizer *open_row(const json_t *row) {
    char path[300];
    struct sl_tokenizer *tokenizer;
    struct sl_error error = {0};
    snprintf(path, sizeof path, SL_TEST_DATA "/tokenizers/%s", json_string_value(json_object_get(row, "base")));
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    assert_int_equal(json_object_update(root, json_object_get(row, "fields")), 0);
    assert_int_equal(json_dump_file(root, file, 0), 0);
    json_decref(root);
    if (sl_tokenizer_open(&tokenizer, file, NULL, &error)) fail_msg("%s", error.message);
    return tokenizer;
}

static void expect_tokens(struct sl_encoder *encoder, const json_t *text, int how, const json_t *want,
                          struct sl_token_list *list) {
    const char *bytes = json_string_value(text);
    list->count = 0;
    assert_int_equal(sl_encode(encoder, bytes, json_string_length(text), how, list, NULL), SL_OK);
    bool same = list->count == json_array_size(want);
    for (size_t i = 0; same && i < list->count; i++)
        same = list->token[i] == json_integer_value(json_array_get(want, i));
    if (!same) fail_msg("\"%s\" has other tokens, how %d", bytes, how);
}

/* Returns whether decoding gives TEXT: Metaspace adds no second space before a text that begins with one, and NFC
 * changes text that is not normalized. */
static bool comes_back(const json_t *row, const char *text) {
    const json_t *fields = json_object_get(row, "fields");
    const bool metaspace = json_is_object(json_object_get(fields, "pre_tokenizer"));
    if (!strcmp(json_string_value(json_object_get(row, "base")), "qwen2.json"))
        return !strstr(text, "e\xcc\x81") && !strstr(text, "\xe2\x84\xaa");
    return !metaspace || (text[0] != ' ' && !strstr(text, "> "));
}

static void expect_text(const struct sl_tokenizer *tokenizer, const struct sl_token_list *list, const char *text) {
    char *back;
    size_t bytes;
    assert_int_equal(sl_decode(tokenizer, list->token, list->count, &back, &bytes, NULL), SL_OK);
    if (bytes != strlen(text) || memcmp(back, text, bytes) != 0) fail_msg("\"%s\" comes back as \"%s\"", text, back);
    free(back);
}

static void expect_row(const json_t *row) {
    struct sl_tokenizer *tokenizer = open_row(row), *published;
    struct sl_encoder *encoder, *other;
    struct sl_token_list list = {0};
    struct sl_error error = {0};
    size_t i;
    json_t *text;
    if (sl_tokenizer_publish(tokenizer, folder, NULL, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_tokenizer_open(&published, folder, NULL, &error), SL_OK);
    assert_int_equal(sl_encoder_open(&encoder, tokenizer, NULL), SL_OK);
    assert_int_equal(sl_encoder_open(&other, published, NULL), SL_OK);
    json_array_foreach(json_object_get(row, "texts"), i, text) {
        const json_t *bytes = json_object_get(text, "text");
        for (int how = 0; how <= SL_ENCODE_SPECIAL; how++) {
            const json_t *want = json_object_get(text, how ? "tokens" : "literal");
            expect_tokens(other, bytes, how, want, &list);
            expect_tokens(encoder, bytes, how, want, &list);
            if (comes_back(row, json_string_value(bytes))) expect_text(tokenizer, &list, json_string_value(bytes));
        }
    }
    sl_token_list_free(&list);
    sl_encoder_close(encoder);
    sl_encoder_close(other);
    sl_tokenizer_close(tokenizer);
    sl_tokenizer_close(published);
}

static void as_the_reference(void **state) {
    (void)state;
    int rows = 0;
    FILE *stream = fopen(SL_TEST_DATA "/tokenizers/added.jsonl", "r");
    static char line[1 << 16];
    assert_non_null(stream);
    for (; fgets(line, sizeof line, stream); rows++) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        expect_row(row);
        json_decref(row);
    }
    fclose(stream);
    assert_int_equal(rows, 10);
}

/* A published file has the original's special flag of each token. */
static void published_flags(void **state) {
    (void)state;
    char line[1 << 16], path[FOLDER + 30];
    FILE *stream = fopen(SL_TEST_DATA "/tokenizers/added.jsonl", "r");
    assert_non_null(stream);
    assert_non_null(fgets(line, sizeof line, stream));
    fclose(stream);
    json_t *row = json_loads(line, 0, NULL), *token;
    struct sl_tokenizer *tokenizer = open_row(row);
    size_t i;
    assert_int_equal(sl_tokenizer_publish(tokenizer, folder, NULL, NULL), SL_OK);
    sl_tokenizer_close(tokenizer);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    const json_t *want = json_object_get(json_object_get(row, "fields"), "added_tokens");
    const json_t *got = json_object_get(root, "added_tokens");
    assert_int_equal(json_array_size(got), json_array_size(want));
    json_array_foreach(want, i, token) assert_true(json_equal(token, json_array_get(got, i)));
    json_decref(root);
    json_decref(row);
}

/* A part of a conversation: a space stands before the text alone, or before each part. */
static void behind_a_token(void **state) {
    (void)state;
    static const struct {
        const char *pre;
        size_t tokens;
    } trial[] = {{"first", 0}, {"always", 1}};
    for (int i = 0; i < 2; i++) {
        json_t *row =
            json_pack("{ss s{sn s{ss ss ss sb}}}", "base", "pieces.json", "fields", "normalizer", "pre_tokenizer",
                      "type", "Metaspace", "replacement", "\xe2\x96\x81", "prepend_scheme", trial[i].pre, "split", 0);
        struct sl_tokenizer *tokenizer = open_row(row);
        assert_true(sl_encode_prefixes(tokenizer, "a", 1, false));
        assert_int_equal(sl_encode_prefixes(tokenizer, "a", 1, true), trial[i].tokens);
        assert_false(sl_encode_prefixes(tokenizer, " a", 2, false));
        assert_false(sl_encode_prefixes(tokenizer, "", 0, false));
        sl_tokenizer_close(tokenizer);
        json_decref(row);
    }
}

/* ---- refusals ---- */

static void refuses(const char *base, json_t *fields, const char *line) {
    char path[300];
    struct sl_tokenizer *tokenizer;
    struct sl_error error = {0};
    snprintf(path, sizeof path, SL_TEST_DATA "/tokenizers/%s", base);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_int_equal(json_object_update(root, fields), 0);
    assert_int_equal(json_dump_file(root, file, 0), 0);
    assert_int_equal(sl_tokenizer_open(&tokenizer, file, NULL, &error), SL_BAD_INPUT);
    if (!strstr(error.message, line)) fail_msg("\"%s\" is not in: %s", line, error.message);
    json_decref(root);
    json_decref(fields);
}

static void refused_files(void **state) {
    (void)state;
    refuses("gpt2.json",
            json_pack("{s{ss s[{ss sb sb} {ss sb}]}}", "pre_tokenizer", "type", "Sequence", "pretokenizers", "type",
                      "ByteLevel", "add_prefix_space", 0, "use_regex", 1, "type", "Digits", "individual_digits", 1),
            "behind ByteLevel, the step \"Digits\"");
    refuses("pieces.json",
            json_pack("{sn s{ss sb ss}}", "normalizer", "pre_tokenizer", "type", "Metaspace", "split", 0,
                      "prepend_scheme", "last"),
            "prepend_scheme \"last\"");
    refuses("pieces.json",
            json_pack("{sn s{ss sb ss}}", "normalizer", "pre_tokenizer", "type", "Metaspace", "split", 0, "replacement",
                      "_"),
            "pre_tokenizer \"Metaspace\"");
    refuses("qwen2.json",
            json_pack("{s[{si ss sb sb}]}", "added_tokens", "id", 420, "content", "e\xcc\x81", "normalized", 1,
                      "special", 0),
            "a token that normalizing changes");
}

static int make_files(void **state) {
    (void)state;
    if (!make_folder(folder, "test_tokenizer_added")) return -1;
    snprintf(file, sizeof file, "%s/file", folder);
    return 0;
}

static int remove_files(void **state) {
    static const char *const names[] = {"file", "tokenizer.json", "tokenizer_config.json"};
    char path[FOLDER + 30];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_reference),
        cmocka_unit_test(published_flags),
        cmocka_unit_test(behind_a_token),
        cmocka_unit_test(refused_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
