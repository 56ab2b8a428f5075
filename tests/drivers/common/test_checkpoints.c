/* test_checkpoints.c - names of a run's checkpoints and their validity, refusals before a run begins, and the printed
 * command for resuming. */
#include "tests/rigs/changes.h"
#include "tests/rigs/folder.h"

#include <sys/file.h>
#include <sys/stat.h>

#include "drivers/common/checkpoints.h"
#include "drivers/common/identity.h"
#include "layers/training/checkpoint.h"
#include "spmd/signature.h"

static char folder[FOLDER], path[FOLDER + 60];

static const char *at(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A checkpoint after STEP steps, with SEED. */
static void save(int64_t step, const char *seed) {
    struct sl_store store = {.checksums = true};
    const size_t shape[] = {3};
    char number[24], name[40];
    snprintf(number, sizeof number, "%lld", (long long)step);
    snprintf(name, sizeof name, "step-%08lld.safetensors", (long long)step);
    const char *const notes[][2] = {
        {"shardloop.checkpoint", "2"}, {"step", number}, {"samples", "8"}, {"seed", seed}, {"optimizer", "adamw"}};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        assert_int_equal(sl_store_set_note(&store, notes[i][0], notes[i][1]), SL_OK);
    assert_non_null(sl_store_add(&store, "bias", SL_F32, 1, shape));
    assert_int_equal(sl_safetensors_write(&store, at(name), NULL), SL_OK);
    sl_store_free(&store);
}

static void cut(const char *name) { assert_int_equal(truncate(at(name), 20), 0); }

static void clear(void) {
    char command[FOLDER + 30];
    snprintf(command, sizeof command, "rm -rf '%s'/*", folder);
    assert_int_equal(system(command), 0);
}

/* ---- which checkpoints count ---- */

static void names_of_checkpoints(void **state) {
    (void)state;
    char long_name[SL_MAX_PATH + 10], made[SL_MAX_PATH];
    struct sl_error error = {0};
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(sl_checkpoint_name(long_name, 3, made, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "the path is too long"));
    assert_int_equal(sl_checkpoint_step_of("a/step-00000012.safetensors"), 12);
    assert_int_equal(sl_checkpoint_step_of("step-00000012.safetensors"), 12);
    assert_int_equal(sl_checkpoint_step_of("/step-123456789012.safetensors"), 123456789012);
    assert_int_equal(sl_checkpoint_step_of("step-0000012.safetensors"), -1);
    assert_int_equal(sl_checkpoint_step_of("step-1234567890123456789.safetensors"), -1);
    assert_int_equal(sl_checkpoint_step_of("step-00000012.safetensor"), -1);
    assert_int_equal(sl_checkpoint_step_of("step-00000012.safetensors.tmp"), -1);
    assert_int_equal(sl_checkpoint_step_of("stop-00000012.safetensors"), -1);
    assert_false(sl_checkpoint_older("model.safetensors", made));
}

/* A directory at the limit of path lengths: its own path fits, but no checkpoint's does. */
static void too_far_down(void **state) {
    (void)state;
    char deep[SL_MAX_PATH - 10], file[SL_MAX_PATH + 30], found[SL_MAX_PATH];
    struct sl_error error = {0};
    struct sl_checkpoints run = {.options = {.save = deep, .keep = 2}};
    size_t length = (size_t)snprintf(deep, sizeof deep, "%s", folder);
    while (length + 3 < sizeof deep) length += (size_t)sprintf(deep + length, "/.");
    save(3, "5");
    save(4, "5");
    assert_int_equal(sl_checkpoint_latest(deep, found, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no checkpoint is whole: "));
    assert_non_null(strstr(error.message, "the path is too long"));
    snprintf(file, sizeof file, "%s/step-00000004.safetensors", deep);
    assert_false(sl_checkpoint_older(file, found));
    assert_int_equal(sl_checkpoint_prune(deep, 4, 1, -1, &error), SL_BAD_INPUT);
    assert_int_equal(sl_checkpoints_open(&run, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "the path is too long"));
    sl_checkpoints_close(&run);
    clear();
}

static void those_that_are_cut_are_skipped(void **state) {
    (void)state;
    char found[SL_MAX_PATH];
    struct sl_error skipped, error = {0};
    for (int step = 1; step <= 4; step++) save(step, "5");
    write_file(at("step-0000005.safetensors"), "", 0);
    write_file(at("step-00000009.safetensorx"), "", 0);
    cut("step-00000004.safetensors");
    cut("step-00000003.safetensors");
    assert_int_equal(sl_checkpoint_latest(folder, found, &skipped, &error), SL_OK);
    assert_int_equal(sl_checkpoint_step_of(found), 2);
    assert_non_null(strstr(skipped.message, "step-00000004")); /* the first of the two */
    assert_true(sl_checkpoint_older(at("step-00000004.safetensors"), found));
    assert_int_equal(sl_checkpoint_step_of(found), 2);
    assert_false(sl_checkpoint_older(at("step-00000001.safetensors"), found));
    cut("step-00000002.safetensors");
    cut("step-00000001.safetensors");
    assert_int_equal(sl_checkpoint_latest(folder, found, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no checkpoint is whole"));
    assert_int_equal(sl_checkpoint_last_step(folder), -1);
    clear();
}

static void what_cannot_be_removed_is_told(void **state) {
    (void)state;
    struct sl_error error = {0};
    assert_int_equal(mkdir(at("step-00000001.safetensors"), 0700), 0);
    assert_int_equal(mkdir(at("step-00000002.safetensors"), 0700), 0);
    save(3, "5");
    assert_int_equal(sl_checkpoint_prune(folder, 3, 1, -1, &error), SL_FAILED);
    assert_non_null(strstr(error.message, "cannot be removed"));
    assert_int_equal(sl_checkpoint_prune("/nowhere", 3, 1, -1, &error), SL_FAILED);
    clear();
    /* A name with a digit too many is not its step's name: there is nothing to remove. */
    save(3, "5");
    write_file(at("step-000000001.safetensors"), "", 0);
    assert_int_equal(sl_checkpoint_prune(folder, 3, 1, -1, &error), SL_OK);
    assert_int_equal(access(at("step-000000001.safetensors"), F_OK), 0);
    clear();
}

static void checks_without_an_error(void **state) {
    (void)state;
    struct sl_checkpoint about;
    save(3, "5");
    assert_int_equal(sl_checkpoint_check(at("step-00000003.safetensors"), NULL, NULL, &about, NULL), SL_OK);
    assert_int_equal(about.step, 3);
    assert_int_equal(sl_checkpoint_check(at("step-00000003.safetensors"), NULL, "sgd", &about, NULL), SL_BAD_INPUT);
    cut("step-00000003.safetensors");
    assert_int_equal(sl_checkpoint_check(at("step-00000003.safetensors"), NULL, NULL, &about, NULL), SL_BAD_INPUT);
    clear();
}

/* ---- before a run ---- */

static void runs_that_do_not_begin(void **state) {
    (void)state;
    struct sl_checkpoints run = {.seed = 6, .options.resume = folder};
    struct sl_error error = {0};
    char long_name[SL_MAX_PATH + 10];
    save(3, "5");
    assert_int_equal(sl_checkpoints_open(&run, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "seed is 5 in the checkpoint, and 6 here"));
    run.seed = 5;
    assert_int_equal(sl_checkpoints_open(&run, &error), SL_OK);
    sl_checkpoints_close(&run);
    run = (struct sl_checkpoints){.options = {.save = folder, .keep = 2}};
    assert_int_equal(sl_checkpoints_open(&run, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "is there, and this run begins after 0 steps"));
    sl_checkpoints_close(&run);
    run = (struct sl_checkpoints){.options.resume = "/nowhere"};
    assert_int_equal(sl_checkpoints_open(&run, &error), SL_BAD_INPUT);
    struct sl_store values = {0};
    assert_int_equal(sl_checkpoints_map(&values, "/nowhere", true, &error), SL_BAD_INPUT);
    sl_store_free(&values);
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    run = (struct sl_checkpoints){.options = {.save = long_name, .keep = 2}};
    assert_int_equal(sl_checkpoints_open(&run, &error), SL_BAD_INPUT);
    sl_checkpoints_close(&run);
    clear();
}

/* A directory with a lock held by another run. */
static void directories_are_locked(void **state) {
    (void)state;
    struct sl_checkpoints one = {.options = {.save = at("saved"), .keep = 2}}, other = one;
    struct sl_error error = {0};
    char saved[sizeof path];
    strcpy(saved, path);
    one.options.save = other.options.save = saved;
    assert_int_equal(sl_checkpoints_open(&one, &error), SL_OK);
    assert_int_equal(sl_checkpoints_open(&other, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "another run saves there"));
    sl_checkpoints_close(&other);
    sl_checkpoints_close(&one);
    clear();
}

/* ---- messages to users ---- */

/* From here to expect_heard, saves all output to stderr. */
struct ear {
    FILE *err;
    char *text;
    size_t size;
};
static void listen_to(struct ear *ear) {
    ear->err = stderr;
    stderr = open_memstream(&ear->text, &ear->size);
    assert_non_null(stderr);
}
/* WANTED NULL: nothing was said. */
static void expect_heard(struct ear *ear, const char *wanted) {
    fclose(stderr);
    stderr = ear->err;
    if (wanted ? !strstr(ear->text, wanted) : *ear->text)
        fail_msg("\"%s\" is not in: %s", wanted ? wanted : "", ear->text);
    free(ear->text);
}

static void expect_end(const struct sl_checkpoints *run, bool interrupted, const char *wanted) {
    struct ear ear;
    listen_to(&ear);
    sl_checkpoints_tell_end(run, 7, 7, interrupted);
    expect_heard(&ear, wanted);
}

static void commands_to_go_on_with(void **state) {
    (void)state;
    static const char *mpi = "mpi", *local = "local";
    static const struct sl_option none[] = {{0}};
    static int nothing;
    struct sl_options command = {
        .program = "trainer", .engine = &local, .section = SL_SECTIONS({"All", none, &nothing})};
    struct sl_checkpoints run = {.options = {.save = "a b", .keep = 2}};
    expect_end(&run, false, "go on with: ");
    expect_end(&run, false, "--resume 'a b' --save 'a b' --steps 14");
    run.options.save = "it's";
    expect_end(&run, false, "--resume \"it's\" --save \"it's\"");
    run.options.save = "saved";
    run.options.every = 3;
    run.options.async = true;
    expect_end(&run, true, "interrupted after step 6, saved in saved/step-00000007.safetensors; go on with: ");
    expect_end(&run, true, "--resume saved --save saved --save-every 3 --save-async");
    run.command = &command;
    expect_end(&run, false, "trainer --resume saved");
    command.engine = NULL;
    expect_end(&run, false, "trainer --resume saved");
    command.engine = &mpi;
    expect_end(&run, false, "trainer --engine mpi --resume saved");
    /* An existing file of metrics is continued. */
    static const char *metrics;
    static const struct sl_option named[] = {{"metrics", SL_OPTION_TEXT, .value = "FILE", .help = "a file"}, {0}};
    char file[sizeof path];
    struct sl_options measured = {.program = "trainer", .section = SL_SECTIONS({"All", named, &metrics})};
    run.command = &measured;
    snprintf(file, sizeof file, "%s", at("metrics"));
    metrics = file;
    expect_end(&run, true, "--save-every 3 --save-async\n");
    write_file(file, "", 0);
    expect_end(&run, true, "--save-async --metrics /");
    clear();
    run.options.save = NULL;
    expect_end(&run, false, NULL);
    expect_end(&run, true, "interrupted after step 6; nothing was saved: --save DIR saves");
    run.brief = true;
    expect_end(&run, true, NULL);
    char long_name[SL_MAX_PATH + 10];
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    run = (struct sl_checkpoints){.options = {.save = long_name, .keep = 2}};
    expect_end(&run, true, NULL);
    sl_checkpoints_tell_begin(&run, 0); /* without a command line nothing is compared */
}

static void expect_compared(const struct sl_options *command, const char *here, const char *wanted) {
    struct ear ear;
    listen_to(&ear);
    sl_checkpoints_compare_data(command, "data", here);
    expect_heard(&ear, wanted);
}

static void data_that_have_changed_are_told(void **state) {
    (void)state;
    static const struct sl_option data = {"data", SL_OPTION_TEXT, .value = "PATH", .help = "a file"};
    static struct sl_options command = {.adoption = {.resumes = true, .file = "saved"}};
    assert_int_equal(sl_store_set_note(&command.adoption.notes, "data", "12 bytes"), SL_OK);
    expect_compared(&command, "13 bytes", "--data: the data have changed since saved was saved: 12 bytes there, and");
    expect_compared(&command, "12 bytes", NULL);
    expect_compared(&command, NULL, NULL);
    command.given[command.givens++] = &data; /* the user has given another */
    expect_compared(&command, "13 bytes", NULL);
    sl_store_free(&command.adoption.notes);
}

/* ---- signatures of files ---- */

static void signatures_of_files(void **state) {
    (void)state;
    struct sl_signature empty = {0}, again = {0}, text = {0}, directory = {0};
    struct sl_error error = {0};
    write_file(at("file"), "", 0);
    assert_int_equal(sl_sign_file(&empty, "data", path, &error), SL_OK);
    assert_int_equal(sl_sign_file(&again, "data", path, &error), SL_OK);
    write_file(at("file"), "text", 4);
    assert_int_equal(sl_sign_file(&text, "data", path, &error), SL_OK);
    assert_int_equal(sl_sign_file(&directory, "data", folder, &error), SL_OK);
    assert_true(sl_signature_hash(&empty) == sl_signature_hash(&again));
    assert_true(sl_signature_hash(&empty) != sl_signature_hash(&text));
    assert_true(sl_signature_hash(&directory) != sl_signature_hash(&text));
    assert_int_equal(sl_sign_file(&text, "data", "/nowhere", &error), SL_BAD_INPUT);
    sl_signature_free(&empty);
    sl_signature_free(&again);
    sl_signature_free(&text);
    sl_signature_free(&directory);
    clear();
}

static int make_files(void **state) {
    (void)state;
    return make_folder(folder, "test_checkpoints") ? 0 : -1;
}

static int remove_files(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_checkpoints),
        cmocka_unit_test(too_far_down),
        cmocka_unit_test(data_that_have_changed_are_told),
        cmocka_unit_test(those_that_are_cut_are_skipped),
        cmocka_unit_test(what_cannot_be_removed_is_told),
        cmocka_unit_test(checks_without_an_error),
        cmocka_unit_test(runs_that_do_not_begin),
        cmocka_unit_test(directories_are_locked),
        cmocka_unit_test(commands_to_go_on_with),
        cmocka_unit_test(signatures_of_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
