/* test_text_files.c - questions, conversations, documents and prompts, each wrong in one way; and questions with every
 * tokenizer. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"

#include <sys/stat.h>

#include "drivers/tools/text/chats.h"
#include "drivers/tools/text/choices.h"
#include "drivers/tools/text/documents.h"
#include "layers/formats/tokens/prompts.h"
#include "layers/formats/tokenizers/tokenizer.h"

/* ---- questions ---- */

static int try_choices(const char *name, void *arg, struct sl_error *error) {
    struct sl_choices choices = {0};
    const int status = sl_choices_read(&choices, name, arg, error);
    sl_choices_free(&choices);
    return status;
}

static const char question[] = "{\"prompt\": \"One and\", \"choices\": [\"one\", \"two\", \"three\"], \"answer\": 1}\n";
static const struct sl_choice_text bytes = {.between = " ", .special = true, .sequence = 16, .vocabulary = 256};

static const struct change choices[] = {
    {"{", "[", "line 1: "},
    {"\"prompt\"", "\"text\"", "no text under the key \"prompt\" or \"context\""},
    {"\"One and\"", "7", "no text under the key \"prompt\" or \"context\""},
    {"\"prompt\"", "\"context\"", NULL},
    {"\"choices\"", "\"choice\"", "no array of 2 to 65536 texts"},
    {"[\"one\", \"two\", \"three\"]", "[\"one\"]", "no array of 2 to 65536 texts"},
    {"\"three\"", "7", "choice 2 is no text, or an empty one"},
    {"\"three\"", "\"\"", "choice 2 is no text, or an empty one"},
    {"\"answer\": 1", "\"answer\": 3", "no integer from 0 to 2 under the key \"answer\""},
    {"\"answer\": 1", "\"answer\": -1", "no integer from 0 to 2"},
    {"\"answer\": 1", "\"answer\": 1.0", "no integer from 0 to 2"},
    {"\"answer\": 1", "\"other\": 1", "no integer from 0 to 2"},
    {"\"three\"", "\"a choice that is longer than a sequence\"", "and --sequence is 16"},
    {"\"One and\"", "\" \\t\\n \"", NULL},
    {"\"One and\"", "\"\"", NULL},
    {"\"One and\"", "\"One and \\u0000\"", NULL},
    {"\"One and\"", "\"a prompt that is longer than a sequence\"", NULL},
};

static void questions(void **state) {
    (void)state;
    struct sl_choice_text text = bytes;
    EXPECT_CHANGES(path, question, choices, try_choices, &text);
    text.vocabulary = 100;
    EXPECT_CHANGES(path, question, ((const struct change[]){{"{", "{", "token 110, but the vocabulary has 0 to 99"}}),
                   try_choices, &text);
    text.vocabulary = 0; /* any */
    EXPECT_CHANGES(path, question, ((const struct change[]){{"{", "{", NULL}}), try_choices, &text);
    EXPECT_CHANGES(path, question, ((const struct change[]){{question, "\n\n", "no questions"}}), try_choices, &text);
}

static void many_questions_and_choices(void **state) {
    (void)state;
    enum { MANY = (1 << 16) + 1, QUESTIONS = 200 };
    struct sl_choice_text text = bytes;
    struct sl_choices read = {0};
    struct sl_error error = {0};
    char *line = malloc(4 * MANY + 100), *to = line;
    assert_non_null(line);
    to += sprintf(to, "{\"prompt\": \"a\", \"answer\": 0, \"choices\": [");
    for (int i = 0; i < MANY; i++) to += sprintf(to, "%s\"b\"", i ? "," : "");
    to += sprintf(to, "]}");
    write_file(path, line, (size_t)(to - line));
    free(line);
    assert_int_equal(try_choices(path, &text, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no array of 2 to 65536 texts"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < QUESTIONS; i++) fputs(question, file);
    fclose(file);
    assert_int_equal(sl_choices_read(&read, path, &text, &error), SL_OK);
    assert_int_equal(read.count, QUESTIONS);
    assert_int_equal(read.question[QUESTIONS - 1].line, QUESTIONS);
    assert_int_equal(read.question[QUESTIONS - 1].answer, 1);
    sl_choices_free(&read);
}

/* The token before a text's first token differs: a token that ends or begins texts, a newline's, any. A choice without
 * a token of its own is refused: here the prompt's end and the choice make one token, which the prompt has. */
static void questions_of_tokens(void **state) {
    (void)state;
    static const char *const files[] = {"gpt2.json",    "qwen2.json",  "smollm.gguf",
                                        "pieces.model", "pieces.json", "llama3.ranks"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char name[300];
        struct sl_tokenizer *tokenizer;
        struct sl_error error = {0};
        snprintf(name, sizeof name, SL_TEST_DATA "/tokenizers/%s", files[f]);
        const char *pattern = strstr(files[f], "ranks") ? "llama3" : NULL;
        if (sl_tokenizer_open(&tokenizer, name, pattern, &error)) fail_msg("%s", error.message);
        struct sl_choice_text text = {.tokenizer = tokenizer, .between = " ", .special = true, .sequence = 16};
        struct sl_choices read = {0};
        const char *lines = "{\"prompt\": \"\", \"choices\": [\"one\", \"two\"], \"answer\": 1}\n"
                            "{\"prompt\": \"The answer is\", \"choices\": [\"one\", \"two\"], \"answer\": 1}\n";
        write_file(path, lines, strlen(lines));
        if (sl_choices_read(&read, path, &text, &error)) fail_msg("%s: %s", files[f], error.message);
        assert_int_equal(read.count, 2);
        sl_choices_free(&read);
        sl_tokenizer_close(tokenizer);
    }
}

/* No tokens begin or end a text: gpt2.json with another name for its only special token. */
static void questions_without_an_end(void **state) {
    (void)state;
    struct sl_tokenizer *tokenizer;
    struct sl_choices read = {0};
    struct sl_error error = {0};
    char *gpt = read_text(SL_TEST_DATA "/tokenizers/gpt2.json");
    for (char *at = gpt; (at = strstr(at, "<|endoftext|>"));) memcpy(at, "<|endoftaxt|>", 13);
    write_file(path, gpt, strlen(gpt));
    free(gpt);
    if (sl_tokenizer_open(&tokenizer, path, NULL, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_token_end(tokenizer), -1);
    struct sl_choice_text text = {.tokenizer = tokenizer, .between = "", .sequence = 16};
    const char *line = "{\"prompt\": \"\", \"choices\": [\"one\", \"two\"], \"answer\": 1}\n";
    write_file(path, line, strlen(line));
    if (sl_choices_read(&read, path, &text, &error)) fail_msg("%s", error.message);
    assert_int_equal(read.samples.inputs.token[0], sl_token_find(tokenizer, "\n", 1));
    sl_choices_free(&read);
    sl_tokenizer_close(tokenizer);
}

/* This tokenizer has no token for a newline either, only bytes: any token comes before a text. */
static void questions_of_bytes_alone(void **state) {
    (void)state;
    struct sl_tokenizer *tokenizer;
    struct sl_choices read = {0};
    struct sl_error error = {0};
    char file[6000], *to = file;
    to += sprintf(to, "{\"model\": {\"byte_fallback\": true, \"merges\": [], \"vocab\": {\"a\": 256");
    for (int b = 0; b < 256; b++) to += sprintf(to, ", \"<0x%02X>\": %d", (unsigned)b, b);
    to += sprintf(to, "}}}");
    write_file(path, file, (size_t)(to - file));
    if (sl_tokenizer_open(&tokenizer, path, NULL, &error)) fail_msg("%s", error.message);
    struct sl_choice_text text = {.tokenizer = tokenizer, .between = "", .sequence = 16};
    const char *line = "{\"prompt\": \"\", \"choices\": [\"one\", \"two\"], \"answer\": 1}\n";
    write_file(path, line, strlen(line));
    if (sl_choices_read(&read, path, &text, &error)) fail_msg("%s", error.message);
    assert_int_equal(read.samples.inputs.token[0], 0);
    assert_int_equal(read.samples.inputs.token[1], 'o');
    sl_choices_free(&read);
    sl_tokenizer_close(tokenizer);
}

/* If a prompt's end and a choice give other tokens together than separately, the scored part begins before the
 * choice. */
static void prompts_and_choices_may_merge(void **state) {
    (void)state;
    struct sl_tokenizer *tokenizer;
    struct sl_choices read = {0};
    struct sl_error error = {0};
    if (sl_tokenizer_open(&tokenizer, SL_TEST_DATA "/tokenizers/gpt2.json", NULL, &error))
        fail_msg("%s", error.message);
    struct sl_choice_text text = {.tokenizer = tokenizer, .between = "", .sequence = 16};
    const char *line = "{\"prompt\": \"t\", \"choices\": [\"he\", \"o\"], \"answer\": 0}\n";
    write_file(path, line, strlen(line));
    if (sl_choices_read(&read, path, &text, &error)) fail_msg("%s", error.message);
    assert_int_equal(read.samples.count, 2);
    assert_int_equal(read.samples.inputs.token[0], sl_token_end(tokenizer)); /* no token of the prompt remains */
    sl_choices_free(&read);
    sl_tokenizer_close(tokenizer);
}

/* ---- conversations ---- */

static int try_chats(const char *name, void *arg, struct sl_error *error) {
    struct sl_chats chats = {0};
    const int status = sl_chats_read(&chats, name, arg, error);
    sl_chats_free(&chats);
    return status;
}

static void conversations(void **state) {
    (void)state;
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}, "
                               "{\"role\": \"assistant\", \"content\": \"Good day\"}]}\n";
    static const struct change changes[] = {
        {"{", "[", "line 1: "},
        {"\"messages\"", "\"message\"", "no array under the key \"messages\""},
        {"\"role\": \"user\"", "\"role\": 7", "message 0 has no text under the key \"role\""},
        {"\"content\": \"Hello\"", "\"text\": \"Hello\"", "message 0 has no text under the key \"content\""},
        {"\"assistant\"", "\"system\"", "no message has the role \"assistant\""},
        {"{", "{", NULL},
    };
    struct sl_chat_text text = {.template = SL_CHAT_BY_TOKENIZER, .sequence = 256, .vocabulary = 256};
    EXPECT_CHANGES(path, chat, changes, try_chats, &text);
    text.vocabulary = 0;
    EXPECT_CHANGES(path, chat, ((const struct change[]){{"{", "{", NULL}}), try_chats, &text);
    text.vocabulary = 100;
    EXPECT_CHANGES(path, chat, ((const struct change[]){{"{", "{", "but the vocabulary has 0 to 99"}}), try_chats,
                   &text);
    text = (struct sl_chat_text){.template = SL_CHAT_BY_TOKENIZER, .sequence = 4};
    EXPECT_CHANGES(path, chat,
                   ((const struct change[]){{"{", "{", "no conversation has an answer within its first 4"}}), try_chats,
                   &text);
    EXPECT_CHANGES(path, chat, ((const struct change[]){{chat, "\n", "no conversations"}}), try_chats, &text);
}

/* ---- documents and prompts ---- */

static void packed_documents(void **state) {
    (void)state;
    struct sl_token_file file = {.path = path};
    struct sl_error error = {0};
    char *large = malloc(100000);
    assert_non_null(large);
    memset(large, 'a', 100000);
    write_file(path, large, 100000);
    free(large);
    assert_int_equal(sl_document_lines_open(&file, &error), SL_OK);
    assert_int_equal(file.contents.count, 100000);
    sl_contents_close(&file.contents);
    file.path = folder;
    assert_int_equal(sl_document_lines_open(&file, &error), SL_BAD_INPUT);
    file.path = path;
    write_file(path, "\x1f\x8b\x08\0", 4);
    assert_int_equal(sl_document_lines_open(&file, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "cut short"));
    sl_contents_close(&file.contents);
}

static void long_names_of_prompts_are_cut(void **state) {
    (void)state;
    char name[600], folders[500];
    struct sl_prompts prompts = {0};
    struct sl_error error = {0};
    snprintf(folders, sizeof folders, "%s/%0100d", folder, 7);
    assert_int_equal(mkdir(folders, 0700), 0);
    snprintf(name, sizeof name, "%s/prompts", folders);
    write_file(name, "a\n\nb\n", 5);
    assert_int_equal(sl_prompts_read(&prompts, name, 256, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "prompts, line 2 is empty"));
    sl_prompts_free(&prompts);
    unlink(name);
    rmdir(folders);
}

static void too_many_prompts(void **state) {
    (void)state;
    struct sl_prompts prompts = {0};
    struct sl_error error = {0};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i <= SL_MOST_PROMPTS; i++) fputs("a\n", file);
    fclose(file);
    assert_int_equal(sl_prompts_read(&prompts, path, 256, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "at most 1048576 prompts"));
    assert_int_equal(sl_prompts_add(&prompts, NULL, (size_t)1 << 30, &error), SL_BAD_INPUT);
    sl_prompts_free(&prompts);
    assert_int_equal(sl_prompts_add(&prompts, NULL, (size_t)1 << 30, &error), SL_BAD_INPUT); /* of tokens */
    sl_prompts_free(&prompts);
}

static int make_files(void **state) {
    (void)state;
    return make_one_file("test_text_files");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions),
        cmocka_unit_test(many_questions_and_choices),
        cmocka_unit_test(questions_of_tokens),
        cmocka_unit_test(questions_without_an_end),
        cmocka_unit_test(questions_of_bytes_alone),
        cmocka_unit_test(prompts_and_choices_may_merge),
        cmocka_unit_test(conversations),
        cmocka_unit_test(packed_documents),
        cmocka_unit_test(long_names_of_prompts_are_cut),
        cmocka_unit_test(too_many_prompts),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
