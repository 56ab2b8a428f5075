/* test_adopt.c - options that a program adopts from a checkpoint's notes, beyond the cases of the harness fuzz_adopt:
 * notes of options that a program does not have, files that are no checkpoints, and a program without a parsed command
 * line. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"

#include "drivers/common/options.h"
#include "layers/formats/stores/safetensors.h"

struct config {
    int size, steps;
    const char *params, *resume;
};

#define FIELD(name) offsetof(struct config, name)
static const struct sl_option table[] = {
    {"size", SL_OPTION_INTEGER, FIELD(size), .min = 1, .max = 100, .keep = SL_KEPT_SIZE, .unless = "depth|steps",
     .help = "an integer"},
    {"steps", SL_OPTION_INTEGER, FIELD(steps), .min = 0, .max = 100, .keep = SL_KEPT_RUN, .help = "an integer"},
    {"params", SL_OPTION_TEXT, FIELD(params), .value = "FILE", .path = SL_PATH_DATA, .help = "a file"},
    {"resume", SL_OPTION_TEXT, FIELD(resume), .value = "FILE", .path = SL_PATH_DATA, .help = "a file"},
    {0}};

/* Writes a file with notes KEY=TEXT, from pairs up to a NULL. */
static void save(const char *const *notes) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    for (; *notes; notes += 2) assert_int_equal(sl_store_set_note(&store, notes[0], notes[1]), SL_OK);
    assert_non_null(sl_store_add(&store, "bias", SL_F32, 1, (size_t[]){1}));
    if (sl_safetensors_write(&store, path, &error)) fail_msg("%s", error.message);
    sl_store_free(&store);
}

/* Parses WORDS, which end with a NULL. */
static void parse(struct sl_options *options, struct config *config, const struct sl_option_section *section,
                  char **words) {
    int count = 0;
    while (words[count]) count++;
    *config = (struct config){.size = 3, .steps = 10};
    *options = (struct sl_options){.program = "test", .section = section};
    assert_int_equal(sl_options_parse(options, count, words), SL_OK);
}

#define CHECKPOINT "shardloop.checkpoint", "1", "step", "2"

/* --depth is none of this program's options, and neither is --lr-schedule: --steps may be given anew. */
static void options_that_a_program_has_not(void **state) {
    (void)state;
    struct config config;
    struct sl_options options;
    save((const char *const[]){CHECKPOINT, "program", "test", "option.size", "7", "option.depth", "2", "option.steps",
                               "10", NULL});
    parse(&options, &config, SL_SECTIONS({"All", table, &config}),
          (char *[]){"test", "--resume", path, "--steps", "20", NULL});
    assert_int_equal(config.size, 3); /* --steps is another one */
    assert_int_equal(config.steps, 20);
    assert_string_equal(options.adoption.overrides, "");
    sl_options_free(&options);
    parse(&options, &config, SL_SECTIONS({"All", table, &config}), (char *[]){"test", "--resume", path, NULL});
    assert_int_equal(config.size, 7);
    sl_options_free(&options);
}

/* Options are not adopted from the notes of a file that is no checkpoint. */
static void files_that_are_no_checkpoints(void **state) {
    (void)state;
    struct config config;
    struct sl_options options;
    save((const char *const[]){"option.size", "7", "option.steps", "4", NULL});
    parse(&options, &config, SL_SECTIONS({"All", table, &config}), (char *[]){"test", "--params", path, NULL});
    assert_int_equal(config.size, 3);
    assert_int_equal(config.steps, 10);
    sl_options_free(&options);
}

/* Options that a program sets itself, without sl_options_parse, are described under the program's name. */
static void options_that_nobody_has_parsed(void **state) {
    (void)state;
    struct config config = {.size = 5, .steps = 6};
    const struct sl_options options = {.program = "test run", .section = SL_SECTIONS({"All", table, &config})};
    struct sl_store notes = {0};
    struct sl_error error = {0};
    assert_int_equal(sl_describe_options(&options, &notes, &error), SL_OK);
    assert_string_equal(sl_store_note(&notes, "option.size"), "5");
    assert_string_equal(sl_store_note(&notes, "program"), "test");
    sl_store_free(&notes);
}

static int make_files(void **state) {
    (void)state;
    return make_one_file("test_adopt");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_a_program_has_not),
        cmocka_unit_test(files_that_are_no_checkpoints),
        cmocka_unit_test(options_that_nobody_has_parsed),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
