/* test_checkpoint_directory.c - a directory with checkpoints in one file and in parts: the latest, the ones that count,
 * and the order of removal of old ones. */
#include <dirent.h>
#include <sys/stat.h>

#include "tests/rigs/changes.h"
#include "tests/rigs/folder.h"

#include "layers/formats/stores/store_parts.h"
#include "layers/training/checkpoint.h"

enum { PARTS = 2 };
static char directory[FOLDER];

static int make_directory(void **state) {
    (void)state;
    return make_folder(directory, "test_checkpoint_directory") ? 0 : -1;
}

static void remove_all(void) {
    DIR *open = opendir(directory);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));) unlinkat(dirfd(open), entry->d_name, 0);
    closedir(open);
}

static int remove_directory(void **state) {
    (void)state;
    remove_all();
    return rmdir(directory);
}

static const char *at(const char *name) {
    static char path[FOLDER + 80];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void put_file(int64_t step) {
    char path[SL_MAX_PATH];
    struct sl_store store = {0};
    assert_int_equal(sl_checkpoint_name(directory, step, path, NULL), SL_OK);
    assert_int_equal(sl_safetensors_write(&store, path, NULL), SL_OK);
}

/* A checkpoint without tensors, in PARTS. */
static void put_parts(int64_t step) {
    struct sl_store whole = {0};
    struct sl_part part[PARTS];
    char path[SL_MAX_PATH], name[PARTS][SL_MAX_PATH], number[24];
    snprintf(number, sizeof number, "%lld", (long long)step);
    for (int p = 0; p < PARTS; p++) {
        struct sl_store store = {.checksums = true}, there = {0};
        sl_store_set_note(&store, "step", number);
        assert_int_equal(sl_checkpoint_part_name(directory, step, p + 1, PARTS, name[p], NULL), SL_OK);
        assert_int_equal(sl_safetensors_write(&store, name[p], NULL), SL_OK);
        assert_int_equal(sl_safetensors_map(&there, name[p], NULL), SL_OK);
        part[p] = (struct sl_part){name[p], there.root};
        sl_store_free(&store);
        sl_store_free(&there);
    }
    assert_int_equal(sl_checkpoint_index_name(directory, step, path, NULL), SL_OK);
    assert_int_equal(sl_parts_write_index(&whole, PARTS, part, path, NULL), SL_OK);
}

/* Returns the names in the directory, without "step-" and leading zeros: "20.index 20.part-1 20.part-2 100". */
static const char *names(void) {
    static char text[1000];
    struct dirent **entry;
    const int count = scandir(directory, &entry, NULL, alphasort);
    *text = 0;
    for (int i = 0; i < count; i++) {
        char *name = entry[i]->d_name;
        if (*name != '.') {
            for (const char *const *end = (const char *const[]){".json", "-of-2.safetensors", ".safetensors", NULL};
                 *end; end++) {
                char *found = strstr(name, *end);
                if (found && !found[strlen(*end)]) *found = 0;
            }
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d%s", *text ? " " : "", atoi(name + 5),
                     name + 5 + strspn(name + 5, "0123456789"));
        }
        free(entry[i]);
    }
    free(entry);
    return text;
}

/* Expects NAME as the latest, and LINE (NULL: none) in the reason for skipped ones. */
static void expect_latest(const char *name, const char *line) {
    char found[SL_MAX_PATH];
    struct sl_error skipped = {0}, error = {0};
    if (sl_checkpoint_latest(directory, found, &skipped, &error)) fail_msg("%s", error.message);
    assert_string_equal(found + strlen(directory) + 1, name);
    if (!line != !skipped.status || (line && !strstr(skipped.message, line))) fail_msg("%s", skipped.message);
}

static void prune_but(int64_t step, int keep, int64_t best, const char *left) {
    struct sl_error error = {0};
    if (sl_checkpoint_prune(directory, step, keep, best, &error)) fail_msg("%s", error.message);
    assert_string_equal(names(), left);
}

static void prune(int64_t step, int keep, const char *left) { prune_but(step, keep, -1, left); }

static void the_best_stays(void **state) {
    (void)state;
    put_file(10);
    put_parts(20);
    put_file(30);
    put_file(40);
    prune_but(40, 1, 20, "20.index 20.part-1 20.part-2 40");
    put_file(50);
    prune_but(50, 2, 20, "20.index 20.part-1 20.part-2 40 50");
    prune_but(50, 1, 50, "50");
    remove_all();
}

static void an_index_is_a_checkpoint(void **state) {
    char path[SL_MAX_PATH], older[SL_MAX_PATH];
    (void)state;
    put_file(10);
    put_parts(20);
    put_file(30);
    put_parts(40);
    expect_latest("step-00000040.index.json", NULL);
    assert_int_equal(sl_checkpoint_last_step(directory), 40);
    assert_int_equal(sl_checkpoint_step_of("a/step-00000040.index.json"), 40);
    assert_int_equal(sl_checkpoint_step_of("a/step-00000040.part-1-of-2.safetensors"), -1);
    assert_true(sl_checkpoint_at(directory, 20, path));
    assert_string_equal(path, at("step-00000020.index.json"));
    assert_true(sl_checkpoint_at(directory, 30, path));
    assert_string_equal(path, at("step-00000030.safetensors"));
    assert_false(sl_checkpoint_at(directory, 25, path));
    assert_true(sl_checkpoint_older(at("step-00000040.index.json"), older));
    assert_string_equal(older, at("step-00000030.safetensors"));
    assert_true(sl_checkpoint_older(at("step-00000030.safetensors"), older));
    assert_string_equal(older, at("step-00000020.index.json"));
    prune(40, 3, "20.index 20.part-1 20.part-2 30 40.index 40.part-1 40.part-2");
    prune(40, 2, "30 40.index 40.part-1 40.part-2");
    put_parts(50);
    prune(50, 1, "50.index 50.part-1 50.part-2");
    remove_all();
}

/* Files after a crash: parts without their index, during a save or a removal. */
static void parts_without_an_index_do_not_count(void **state) {
    struct sl_error error = {0};
    char found[SL_MAX_PATH];
    (void)state;
    put_parts(20);
    put_parts(30);
    put_parts(10);
    assert_int_equal(unlink(at("step-00000030.index.json")), 0);
    assert_int_equal(unlink(at("step-00000010.index.json")), 0);
    write_file(at("step-00000040.part-2-of-4.safetensors.77.tmp"), "x", 1);
    write_file(at("step-00000040.index.json.77.tmp"), "x", 1);
    write_file(at("step-00000040.part-x-of-4.safetensors"), "x", 1); /* no run's */
    write_file(at("step-00000040.part-1.safetensors"), "x", 1);
    write_file(at("step-00000040.index.json.backup"), "x", 1);
    expect_latest("step-00000020.index.json", NULL);
    prune(20, 2, "20.index 20.part-1 20.part-2 40.index.json.backup 40.part-1 40.part-x-of-4");
    remove_all();
    put_parts(20);
    assert_int_equal(unlink(at("step-00000020.index.json")), 0);
    assert_int_equal(sl_checkpoint_latest(directory, found, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "there is no checkpoint"));
    remove_all();
}

/* A checkpoint with a missing or shortened part, as after an interrupted copy, is skipped with a line. Damaged parts
 * are not skipped. */
static void a_missing_part_is_passed_over(void **state) {
    (void)state;
    put_parts(20);
    put_parts(30);
    assert_int_equal(unlink(at("step-00000030.part-2-of-2.safetensors")), 0);
    expect_latest("step-00000020.index.json", "step-00000030.part-2-of-2.safetensors: cannot be opened: No such file");
    put_parts(30);
    assert_int_equal(truncate(at("step-00000030.part-2-of-2.safetensors"), 9), 0);
    expect_latest("step-00000020.index.json", "step-00000030.part-2-of-2.safetensors: ");
    put_parts(30);
    assert_int_equal(truncate(at("step-00000030.index.json"), 50), 0);
    expect_latest("step-00000020.index.json", "step-00000030.index.json: cut short after 50 bytes");
    put_parts(30);
    char *part = read_text(at("step-00000030.index.json"));
    part[60] ^= 1;
    write_file(at("step-00000030.index.json"), part, strlen(part));
    free(part);
    expect_latest("step-00000030.index.json", NULL);
    remove_all();
}

/* A step saved again, in one file: the file counts, before its index is removed and after. */
static void a_file_is_before_an_index(void **state) {
    char path[SL_MAX_PATH];
    (void)state;
    put_parts(20);
    put_file(20);
    expect_latest("step-00000020.safetensors", NULL);
    assert_true(sl_checkpoint_at(directory, 20, path));
    assert_string_equal(path, at("step-00000020.safetensors"));
    prune(20, 2, "20");
    remove_all();
}

/* If the index cannot be removed, all its parts stay. */
static void the_index_goes_first(void **state) {
    struct sl_error error = {0};
    (void)state;
    put_parts(10);
    put_parts(20);
    assert_int_equal(unlink(at("step-00000010.index.json")), 0);
    assert_int_equal(mkdir(at("step-00000010.index.json"), 0777), 0);
    assert_int_equal(sl_checkpoint_prune(directory, 20, 1, -1, &error), SL_FAILED);
    assert_non_null(strstr(error.message, "step-00000010.index.json: cannot be removed: Is a directory"));
    assert_string_equal(names(), "10.index 10.part-1 10.part-2 20.index 20.part-1 20.part-2");
    assert_int_equal(rmdir(at("step-00000010.index.json")), 0);
    remove_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_is_a_checkpoint),
        cmocka_unit_test(the_best_stays),
        cmocka_unit_test(parts_without_an_index_do_not_count),
        cmocka_unit_test(a_missing_part_is_passed_over),
        cmocka_unit_test(a_file_is_before_an_index),
        cmocka_unit_test(the_index_goes_first),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("SL_TEST_FILTER"));
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
