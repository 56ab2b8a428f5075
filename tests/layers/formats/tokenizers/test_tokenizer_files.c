/* test_tokenizer_files.c - files of tokenizers, each with one fault: it is refused with a line that names the fault;
 * and optional parts of such files. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"
#include "tests/rigs/gguf_file.h"

#include <math.h>

#include "layers/formats/tokenizers/tokenizer.h"

static char beside[FOLDER + 40];

/* Opens the file NAME with the pattern ARG (NULL: none), and closes the tokenizer. */
static int try(const char *name, void *arg, struct sl_error *error) {
    struct sl_tokenizer *tokenizer;
    const int status = sl_tokenizer_open(&tokenizer, name, arg, error);
    assert_true(!status == (tokenizer != NULL));
    sl_tokenizer_close(tokenizer);
    return status;
}

/* ---- tokenizer.json ---- */

#define SPLIT "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"a\"}}"
#define MODEL(rest) "{\"model\": {}, " rest "}"
#define PIECES(rest) "{\"model\": {\"byte_fallback\": true}, " rest "}"
#define WORDS(rest) "{\"model\": {" rest "}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}"

static const struct change texts[] = {
    {"*", MODEL("\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}"),
     "normalizer \"Lowercase\""},
    {"*", MODEL("\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"}"), "normalizer \"Prepend\""},
    {"*", MODEL("\"normalizer\": {\"type\": \"Replace\"}"), "normalizer \"Replace\""},
    {"*", PIECES("\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"x\"}"), "normalizer \"Prepend\""},
    {"*", PIECES("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"x\"}}"),
     "normalizer \"Replace\""},
    {"*", PIECES("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"x\"}"),
     "normalizer \"Replace\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}"),
     "pre_tokenizer \"ByteLevel\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": false}"),
     "by the pre_tokenizer's pattern \"\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"Digits\"}"), "pre_tokenizer \"Digits\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"Digits\", \"individual_digits\": true}"), "pattern \"\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Removed\"}"), "pre_tokenizer \"Split\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": true}"),
     "pre_tokenizer \"Split\""},
    {"*", MODEL("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT ", " SPLIT "]}"),
     "pre_tokenizer \"Split\""},
    {"*", PIECES("\"pre_tokenizer\": {\"type\": \"Metaspace\"}"), "pre_tokenizer \"Metaspace\""},
    {"*", PIECES("\"pre_tokenizer\": {\"type\": \"Whitespace\"}"), "pre_tokenizer \"Whitespace\""},
    {"*", PIECES("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"split\": false, \"prepend_scheme\": \"last\"}"),
     "prepend_scheme \"last\""},
    {"*", PIECES("\"added_tokens\": [{\"id\": \"0\", \"content\": \"a\"}]"), "no \"id\" or \"content\""},
    {"*", PIECES("\"added_tokens\": [{\"id\": 0, \"content\": 7}]"), "no \"id\" or \"content\""},
    {"*", WORDS("\"continuing_subword_prefix\": \"x\""), "model \"continuing_subword_prefix\""},
    {"*", WORDS("\"end_of_word_suffix\": \"x\""), "model \"end_of_word_suffix\""},
    {"*", WORDS("\"end_of_word_suffix\": \"\", \"vocab\": {}"), "no list \"merges\""},
    {"*", WORDS("\"vocab\": {\"\xe2\x82\xac\": 0}, \"merges\": []"), "stands for the byte 0x00"},
    {"*", WORDS("\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [[\"a\"]]"), "merge 0 is not two texts"},
    {"*", WORDS("\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [[7, \"a\"]]"), "merge 0 is not two texts"},
    {"*", WORDS("\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"ab\"]"), "merge 0 is not two texts"},
};

static const struct change divisions[] = {
    /* of qwen2.json, with a known pattern */
    {"\"use_regex\": false", "\"use_regex\": true", "by the pre_tokenizer's pattern"},
    {"\"type\": \"ByteLevel\"", "\"type\": \"Digits\", \"individual_digits\": true", "by the pre_tokenizer's pattern"},
    {"\"pretokenizers\": [", "\"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": true},",
     "by the pre_tokenizer's pattern"},
    {"\"type\": \"ByteLevel\"", "\"type\": \"Bytes\"", "pre_tokenizer \"Bytes\""},
};

static const struct change pieces[] = {
    /* of pieces.json, without a pre_tokenizer */
    {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"split\": false}", NULL},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"split\": false, \"prepend_scheme\": \"first\"}", NULL},
    {"\"normalizer\"", "\"other\"", NULL},
    {"\"<0x01>\": 4", "\"<0x01>\": 3", "two tokens have the number 3"},
};

static char *text_of(const char *name) {
    char whole[300];
    snprintf(whole, sizeof whole, SL_TEST_DATA "/tokenizers/%s", name);
    return read_text(whole);
}

static void json_files(void **state) {
    (void)state;
    char *qwen = text_of("qwen2.json"), *small = text_of("pieces.json"), *gpt = text_of("gpt2.json");
    EXPECT_CHANGES(path, "*", texts, try, NULL);
    EXPECT_CHANGES(path, qwen, divisions, try, NULL);
    EXPECT_CHANGES(path, small, pieces, try, NULL);
    EXPECT_CHANGES(path, gpt, ((const struct change[]){{"{", "{", NULL}}), try, "gpt2");
    EXPECT_CHANGES(path, small, ((const struct change[]){{"{", "{", "divides text itself: name no pattern"}}), try,
                   "gpt2");
    free(qwen);
    free(small);
    free(gpt);
}

/* "unk_token" of words must be a token; only a byte without a token needs it. */
static void unknown_tokens(void **state) {
    (void)state;
    char *gpt = text_of("gpt2.json");
    EXPECT_CHANGES(
        path, gpt,
        ((const struct change[]){
            {"\"unk_token\": null", "\"unk_token\": \"a\"", NULL},
            {"\"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
             "\"fuse_unk\": false",
             "\"unk_token\": \"a\", \"fuse_unk\": true", "model \"fuse_unk\""},
        }),
        try, NULL);
    free(gpt);
}

/* Tokens that begin and end a text: names, objects with names, none; and a file that is no JSON, or empty. */
static void configs(void **state) {
    (void)state;
    static const struct {
        const char *config;
        int32_t end; /* -1: none */
    } row[] = {{"{\"eos_token\": \"<|endoftext|>\"}", 0},
               {"{\"eos_token\": {\"content\": \"<|endoftext|>\"}, \"bos_token\": {}}", 0},
               {"{\"eos_token\": \"no such token\"}", -1},
               {"{\"eos_token\": null}", -1},
               {"{", -1},
               {"", -1}};
    char *gpt = text_of("gpt2.json");
    write_file(path, gpt, strlen(gpt));
    snprintf(beside, sizeof beside, "%s/tokenizer_config.json", folder);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct sl_tokenizer *tokenizer;
        write_file(beside, row[i].config, strlen(row[i].config));
        assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
        assert_int_equal(sl_token_end(tokenizer), row[i].end);
        sl_tokenizer_close(tokenizer);
    }
    unlink(beside);
    free(gpt);
}

/* ---- GGUF ---- */

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, BYTE = 6 };

static int open_grown(void *pattern, struct sl_error *error) {
    *error = (struct sl_error){0};
    write_file(path, file.bytes, file.count);
    return try(path, pattern, error);
}

static void expect_grown(const char *line) {
    struct sl_error error;
    const int status = open_grown(NULL, &error);
    expect_line("a GGUF file", status, &error, line);
}

/* Writes "llama": the 256 bytes, and OTHERS pieces with types and scores. TYPES: the number of types in the file. */
static void put_pieces(const char *const *text, const int *type, int others, uint64_t types, float score) {
    put_string("tokenizer.ggml.model", "llama");
    put_array("tokenizer.ggml.tokens", SL_GGUF_STRING, 256 + (uint64_t)others);
    for (int b = 0; b < 256; b++) {
        char piece[8];
        snprintf(piece, sizeof piece, "<0x%02X>", b);
        put_text(piece);
    }
    for (int i = 0; i < others; i++) put_text(text[i]);
    put_array("tokenizer.ggml.token_type", SL_GGUF_I32, types);
    for (int i = 0; i < (int)types; i++) put_number((uint64_t)(i < 256 ? BYTE : type[i - 256]), 4);
    put_array("tokenizer.ggml.scores", SL_GGUF_F32, 256 + (uint64_t)others);
    for (int i = 0; i < 256 + others; i++) put(&score, sizeof score);
}

static const char *const some[] = {"<s>", "</s>", "<unk>", "a", "b", "ab", "<0xZZ>", "\xe2\x96\x81"};
static const int kinds[] = {CONTROL, USER_DEFINED, UNKNOWN, NORMAL, NORMAL, NORMAL, BYTE, NORMAL};
enum { SOME = sizeof some / sizeof *some };

static void gguf_pieces(void **state) {
    (void)state;
    struct sl_tokenizer *tokenizer;
    struct sl_error error;
    put_head(0, 8);
    put_pieces(some, kinds, SOME, 256 + SOME, -1);
    put_key("tokenizer.ggml.add_space_prefix", SL_GGUF_BOOL);
    put_number(0, 1);
    put_integer("tokenizer.ggml.bos_token_id", 256);
    put_integer("tokenizer.ggml.eos_token_id", 257);
    put_integer("tokenizer.ggml.unknown_token_id", 258);
    assert_int_equal(open_grown("gpt2", &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "name no pattern"));
    if (sl_tokenizer_open(&tokenizer, path, NULL, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_token_begin(tokenizer), 256);
    assert_int_equal(sl_token_end(tokenizer), 257);
    assert_int_equal(sl_tokenizer_vocabulary(tokenizer), 256 + SOME);
    struct sl_encoder *encoder;
    struct sl_token_list list = {0};
    assert_int_equal(sl_encoder_open(&encoder, tokenizer, NULL), SL_OK);
    assert_int_equal(sl_encode(encoder, "ab<", 3, false, &list, NULL), SL_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.token[0], 261); /* the merge */
    assert_int_equal(list.token[1], '<'); /* a byte */
    sl_token_list_free(&list);
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
    /* none begins or ends a text */
    put_head(0, 4);
    put_pieces(some, kinds, SOME, 256 + SOME, -1);
    write_file(path, file.bytes, file.count);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
    assert_int_equal(sl_token_end(tokenizer), -1);
    sl_tokenizer_close(tokenizer);
    /* numbers without a token */
    put_head(0, 7);
    put_pieces(some, kinds, SOME, 256 + SOME, -1);
    put_integer("tokenizer.ggml.bos_token_id", 9999);
    put_integer("tokenizer.ggml.eos_token_id", 9999);
    put_integer("tokenizer.ggml.unknown_token_id", 9999);
    write_file(path, file.bytes, file.count);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
    assert_int_equal(sl_token_begin(tokenizer), -1);
    assert_int_equal(sl_token_end(tokenizer), -1);
    sl_tokenizer_close(tokenizer);
}

static void gguf_pieces_are_refused(void **state) {
    (void)state;
    put_head(0, 4);
    put_pieces(some, kinds, SOME, 256 + SOME, INFINITY);
    expect_grown("the score of token 0 is not finite");
    put_head(0, 4);
    put_pieces(some, kinds, SOME, 255 + SOME, -1);
    expect_grown("tokenizer.ggml.token_type is missing, or of another type or length");
    put_head(0, 3); /* the scores are not counted */
    put_pieces(some, kinds, SOME, 256 + SOME, -1);
    expect_grown("tokenizer.ggml.scores is missing");
}

static void gguf_words_are_refused(void **state) {
    (void)state;
    put_head(0, 0);
    expect_grown("tokenizer.ggml.model is missing, or no text");
    put_head(0, 1);
    put_integer("tokenizer.ggml.model", 1);
    expect_grown("tokenizer.ggml.model is missing, or no text");
    put_head(0, 1);
    put_array("tokenizer.ggml.model", SL_GGUF_STRING, 1);
    put_text("gpt2");
    expect_grown("tokenizer.ggml.model is missing, or no text");
    put_head(0, 1);
    put_string("tokenizer.ggml.model", "gpt3");
    expect_grown("tokenizer.ggml.model is \"gpt3\"");
    put_head(0, 1);
    put_string("tokenizer.ggml.model", "a model whose name is longer than thirty characters");
    expect_grown("tokenizer.ggml.model is \"a model whose name is longer t\"");
    put_head(0, 1);
    put_string("tokenizer.ggml.model", "gpt2");
    expect_grown("tokenizer.ggml.pre is missing, or no text");
    put_head(0, 2);
    put_string("tokenizer.ggml.model", "gpt2");
    put_string("tokenizer.ggml.pre", "other");
    expect_grown("tokenizer.ggml.pre is \"other\"");
    put_head(0, 2);
    put_string("tokenizer.ggml.model", "gpt2");
    put_string("tokenizer.ggml.pre", "a pattern whose name is longer than thirty");
    expect_grown("tokenizer.ggml.pre is \"a pattern whose name is longer\"");
}

/* A named pattern replaces the file's. */
static void gguf_words_by_named_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {"gpt2", "qwen2", "llama3"};
    for (int i = 0; i < 3; i++) {
        struct sl_error error = {0};
        if (try(SL_TEST_DATA "/tokenizers/smollm.gguf", (void *)(uintptr_t)patterns[i], &error))
            fail_msg("%s", error.message);
    }
}

/* Writes "gpt2" with one token and faulty lists. */
static void put_words(uint64_t values) {
    put_head(0, values);
    put_string("tokenizer.ggml.model", "gpt2");
    put_string("tokenizer.ggml.pre", "gpt-2");
}

static void gguf_lists_are_refused(void **state) {
    (void)state;
    struct sl_error error;
    put_words(2);
    expect_grown("tokenizer.ggml.tokens is missing");
    put_words(3);
    put_string("tokenizer.ggml.tokens", "a");
    expect_grown("tokenizer.ggml.tokens is missing, or of another type");
    put_words(3);
    put_array("tokenizer.ggml.tokens", SL_GGUF_U8, 1);
    put_number(1, 1);
    expect_grown("tokenizer.ggml.tokens is missing, or of another type");
    put_words(3);
    put_array("tokenizer.ggml.tokens", SL_GGUF_STRING, 0);
    expect_grown("0 tokens: allowed are 1 to");
    put_words(4);
    put_array("tokenizer.ggml.tokens", SL_GGUF_STRING, 1);
    put_text("a");
    put_array("tokenizer.ggml.token_type", SL_GGUF_I32, 1);
    put_number(NORMAL, 4);
    expect_grown("tokenizer.ggml.merges is missing");
    put_words(5);
    put_array("tokenizer.ggml.tokens", SL_GGUF_STRING, 1);
    put_text("a");
    put_array("tokenizer.ggml.token_type", SL_GGUF_I32, 1);
    put_number(NORMAL, 4);
    put_array("tokenizer.ggml.merges", SL_GGUF_STRING, 1);
    put_text("aa");
    expect_grown("merge 0 has no blank between two tokens");
    assert_int_equal(open_grown("gpt2", &error), SL_BAD_INPUT); /* with a named pattern; the rest is unchanged */
    assert_non_null(strstr(error.message, "merge 0 has no blank"));
    /* too many tokens: empty texts, which are zeros, so the file can be sparse */
    put_words(3);
    put_array("tokenizer.ggml.tokens", SL_GGUF_STRING, ((uint64_t)1 << 22) + 1);
    write_file(path, file.bytes, file.count);
    assert_int_equal(truncate(path, (off_t)file.count + 8 * (((off_t)1 << 22) + 1)), 0);
    assert_int_equal(try(path, NULL, &error), SL_BAD_INPUT);
    if (!strstr(error.message, "4194305 tokens: allowed are 1 to")) fail_msg("%s", error.message);
}

/* ---- SentencePiece ---- */

static void put_varint(uint64_t value) {
    for (; value >= 128; value >>= 7) put_number((value & 127) | 128, 1);
    put_number(value, 1);
}

static void put_field(int number, int type) { put_varint((uint64_t)number << 3 | (uint64_t)type); }

/* A message of BYTES as field NUMBER. */
static void put_message(int number, const void *bytes, size_t count) {
    put_field(number, 2);
    put_varint(count);
    put(bytes, count);
}

static void put_piece(const char *text, float score, int type) {
    unsigned char bytes[1200], *at = bytes;
    *at++ = 1 << 3 | 2;
    const size_t count = strlen(text);
    *at++ = (unsigned char)((count & 127) | (count > 127 ? 128 : 0));
    if (count > 127) *at++ = (unsigned char)(count >> 7);
    memcpy(at, text, count);
    at += count;
    *at++ = 2 << 3 | 5;
    memcpy(at, &score, sizeof score);
    at += sizeof score;
    *at++ = 3 << 3;
    *at++ = (unsigned char)type;
    put_message(1, bytes, (size_t)(at - bytes));
}

/* All bytes, a few pieces, and the messages TRAINER and NORMALIZER. */
static void put_model(const char *trainer, size_t trained, const char *normalizer, size_t normal) {
    file.count = 0;
    put_piece("<unk>", 0, UNKNOWN);
    put_piece("<user>", 0, USER_DEFINED);
    put_piece("\xe2\x96\x81", -1, NORMAL);
    put_piece("a", -2, NORMAL);
    for (int b = 0; b < 256; b++) {
        char piece[8];
        snprintf(piece, sizeof piece, "<0x%02X>", b);
        put_piece(piece, 0, BYTE);
    }
    put_message(2, trainer, trained);
    put_message(3, normalizer, normal);
}
#define PUT_MODEL(trainer, normalizer) put_model(trainer, sizeof(trainer) - 1, normalizer, sizeof(normalizer) - 1)

/* Fields: 3 the type (2: BPE), 35 tokens for bytes, 41 and 42 the tokens that begin and end a text; 2 a map, 3 a
 * prefix, 4 removed spaces, 5 escaped spaces. */
#define BPE "\x18\x02"
#define BYTES "\x98\x02\x01"
#define KEEPS "\x20\x00"

static void sentencepiece_models(void **state) {
    (void)state;
    struct sl_tokenizer *tokenizer;
    struct sl_error error;
    PUT_MODEL(BPE BYTES "\xc8\x02\x01\xd0\x02\x03", KEEPS "\x18\x00\x28\x01\x10\x07"); /* 2: no message, no map */
    if (open_grown(NULL, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
    assert_int_equal(sl_token_begin(tokenizer), 1);
    assert_int_equal(sl_token_end(tokenizer), 3);
    sl_tokenizer_close(tokenizer);
    PUT_MODEL(BPE BYTES "\xc8\x02\xff\x7f\xd0\x02\xff\x7f", KEEPS);
    write_file(path, file.bytes, file.count);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
    assert_int_equal(sl_token_begin(tokenizer), -1);
    assert_int_equal(sl_token_end(tokenizer), -1);
    sl_tokenizer_close(tokenizer);
    /* -1, ten bytes long: none */
    PUT_MODEL(BPE BYTES
              "\xc8\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xd0\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
              KEEPS);
    write_file(path, file.bytes, file.count);
    assert_int_equal(sl_tokenizer_open(&tokenizer, path, NULL, NULL), SL_OK);
    assert_int_equal(sl_token_begin(tokenizer), -1);
    assert_int_equal(sl_token_end(tokenizer), -1);
    sl_tokenizer_close(tokenizer);
}

static void sentencepiece_models_are_refused(void **state) {
    (void)state;
    struct sl_error error;
    PUT_MODEL(BPE "\x98\x02\x00", KEEPS);
    expect_grown("it has no tokens for bytes");
    PUT_MODEL("\x18\x01" BYTES, KEEPS);
    expect_grown("its model is not BPE");
    PUT_MODEL(BPE BYTES, KEEPS "\x12\x01x");
    expect_grown("it replaces characters by others");
    PUT_MODEL(BPE BYTES, "\x20\x01");
    expect_grown("it removes spaces");
    PUT_MODEL(BPE BYTES, KEEPS "\x28\x00");
    expect_grown("it keeps spaces as they are");
    PUT_MODEL(BPE BYTES, KEEPS "\x28");
    expect_grown("malformed or truncated");
    PUT_MODEL(BPE BYTES "\x07", KEEPS);
    expect_grown("malformed or truncated");
    PUT_MODEL(BPE BYTES, KEEPS);
    put_piece("b", NAN, NORMAL);
    expect_grown("malformed or truncated");
    PUT_MODEL(BPE BYTES, KEEPS);
    put_piece("<0xZZ>", 0, BYTE);
    expect_grown("is of the type BYTE");
    PUT_MODEL(BPE BYTES, KEEPS);
    char text[1100];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    put_piece(text, 0, NORMAL);
    expect_grown("allowed are 1 to");
    PUT_MODEL(BPE BYTES, KEEPS);
    put_message(1, "\x12\x01x\x0a\x01y", 6); /* a score that is a text */
    write_file(path, file.bytes, file.count);
    if (try(path, NULL, &error)) fail_msg("%s", error.message);
    PUT_MODEL(BPE BYTES, KEEPS);
    write_file(path, file.bytes, file.count);
    assert_int_equal(try(path, "gpt2", &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "name no pattern"));
}

static int make_files(void **state) {
    (void)state;
    return make_one_file("test_tokenizer_files");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_files),
        cmocka_unit_test(unknown_tokens),
        cmocka_unit_test(configs),
        cmocka_unit_test(gguf_pieces),
        cmocka_unit_test(gguf_pieces_are_refused),
        cmocka_unit_test(gguf_words_are_refused),
        cmocka_unit_test(gguf_words_by_named_patterns),
        cmocka_unit_test(gguf_lists_are_refused),
        cmocka_unit_test(sentencepiece_models),
        cmocka_unit_test(sentencepiece_models_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
