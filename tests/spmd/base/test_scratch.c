/* test_scratch.c - a file without a name stores data, and reports its errors. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmd/base/scratch.h"

enum { BYTES = 100000 };

static char directory[] = "/tmp/test_scratch.XXXXXX";

static int enter(void **state) {
    (void)state;
    return !mkdtemp(directory) || chdir(directory);
}

static int leave(void **state) {
    (void)state;
    return chdir("/") || rmdir(directory);
}

static int files_here(void) {
    DIR *list = opendir(".");
    int files = 0;
    assert_non_null(list);
    for (const struct dirent *entry; (entry = readdir(list));) files += entry->d_name[0] != '.';
    closedir(list);
    return files;
}

static void it_holds_zeros_then_what_is_written(void **state) {
    (void)state;
    struct sl_scratch scratch;
    struct sl_error error = {0};
    char bytes[BYTES], want[BYTES] = {0};
    assert_int_equal(sl_scratch_open(&scratch, ".", BYTES, &error), SL_OK);
    assert_int_equal(sl_scratch_read(&scratch, 0, bytes, BYTES, &error), SL_OK);
    assert_memory_equal(bytes, want, BYTES);
    for (int i = 0; i < BYTES; i++) want[i] = (char)(i * 7);
    assert_int_equal(sl_scratch_write(&scratch, 0, want, 1000, &error), SL_OK);
    assert_int_equal(sl_scratch_write(&scratch, 1000, want + 1000, BYTES - 1000, &error), SL_OK);
    sl_scratch_expect(&scratch, 3, 50000);
    assert_int_equal(sl_scratch_read(&scratch, 3, bytes, 50000, &error), SL_OK);
    assert_memory_equal(bytes, want + 3, 50000);
    sl_scratch_close(&scratch);
    sl_scratch_close(&scratch);
}

static void it_leaves_no_file(void **state) {
    (void)state;
    struct sl_scratch scratch;
    const int before = files_here();
    assert_int_equal(sl_scratch_open(&scratch, ".", BYTES, NULL), SL_OK);
    assert_int_equal(files_here(), before);
    sl_scratch_close(&scratch);
}

static void expect_refusal(const char *where, size_t bytes, int status, const char *text) {
    struct sl_scratch scratch;
    struct sl_error error = {0};
    assert_int_equal(sl_scratch_open(&scratch, where, bytes, &error), status);
    if (!strstr(error.message, text)) fail_msg("\"%s\" lacks \"%s\"", error.message, text);
    sl_scratch_close(&scratch); /* though it is not open */
}

static void what_cannot_be_made_is_refused(void **state) {
    (void)state;
    expect_refusal("./nowhere", 1, SL_BAD_INPUT, "./nowhere: no file can be made there: No such file or directory");
    expect_refusal("/dev/null", 1, SL_BAD_INPUT, "/dev/null: no file can be made there");
    expect_refusal(".", (size_t)1 << 60, SL_FAILED, ".: no room for a file of 1152921504606846976 bytes: ");
}

static void a_file_that_is_too_short_is_told(void **state) {
    (void)state;
    struct sl_scratch scratch;
    struct sl_error error = {0};
    char bytes[100] = {0};
    assert_int_equal(sl_scratch_open(&scratch, ".", BYTES, &error), SL_OK);
    assert_int_equal(ftruncate(scratch.file, 4096), 0);
    assert_int_equal(sl_scratch_read(&scratch, 4000, bytes, sizeof bytes, &error), SL_FAILED);
    assert_string_equal(error.message, "the offload file cannot be read at byte 4096: it ends there");
    assert_int_equal(sl_scratch_write(&scratch, 50000, bytes, sizeof bytes, &error),
                     SL_FAILED); /* not: zeros before it */
    assert_string_equal(error.message, "the offload file has 4096 bytes, not the 100000 that it was made with");
    const int file = scratch.file;
    scratch.file = 0x7fffffff; /* no such file */
    assert_int_equal(sl_scratch_write(&scratch, 7, bytes, sizeof bytes, &error), SL_FAILED);
    assert_string_equal(error.message, "the offload file cannot be written at byte 7: Bad file descriptor");
    scratch.file = file;
    sl_scratch_close(&scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_holds_zeros_then_what_is_written),
        cmocka_unit_test(it_leaves_no_file),
        cmocka_unit_test(what_cannot_be_made_is_refused),
        cmocka_unit_test(a_file_that_is_too_short_is_told),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, enter, leave);
}
