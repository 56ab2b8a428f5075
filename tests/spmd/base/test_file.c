/* test_file.c - files that users name are opened, or refused, without long waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spmd/base/file.h"

static char directory[] = "/tmp/test_file.XXXXXX";

enum { ALL = SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DEVICE | SL_FILE_DIRECTORY };

static int enter(void **state) {
    (void)state;
    return !mkdtemp(directory) || chdir(directory) || mkfifo("fifo", 0600) || mkdir("folder", 0700);
}

static int leave(void **state) {
    (void)state;
    const char *const names[] = {"fifo", "file", "socket"};
    for (int i = 0; i < 3; i++) unlink(names[i]);
    return rmdir("folder") || chdir("/") || rmdir(directory);
}

static void nap(int milliseconds) {
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* Expects a refusal: FILE and *REASON are the results of a call. */
static void refused(FILE *file, const char *const *reason, const char *expected) {
    assert_null(file);
    assert_string_equal(*reason, expected);
}

static void kinds_have_names(void **state) {
    (void)state;
    const struct {
        unsigned mode;
        int kind;
        const char *name;
    } row[] = {{S_IFREG, SL_FILE_REGULAR, "a regular file"},
               {S_IFIFO, SL_FILE_PIPE, "a pipe"},
               {S_IFCHR, SL_FILE_DEVICE, "a device"},
               {S_IFDIR, SL_FILE_DIRECTORY, "a directory"},
               {S_IFBLK, 0, "a device"},
               {S_IFSOCK, 0, "a socket"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_string_equal(sl_file_kind_name(row[i].mode | 0644), row[i].name);
        assert_int_equal(sl_file_allows(ALL, row[i].mode), row[i].kind != 0);
        assert_int_equal(sl_file_allows(row[i].kind, row[i].mode), row[i].kind != 0);
        assert_false(sl_file_allows(ALL & ~row[i].kind, row[i].mode));
    }
}

static void what_is_written_is_read(void **state) {
    (void)state;
    const char *reason, *const expected[] = {"one\n", "one\ntwo\n", "three\n"};
    const bool appends[] = {false, true, false};
    const char *const words[] = {"one\n", "two\n", "three\n"};
    for (int i = 0; i < 3; i++) {
        char text[32] = "";
        FILE *file = sl_file_write("file", appends[i], SL_FILE_REGULAR, &reason);
        assert_non_null(file);
        assert_true(fputs(words[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
        file = sl_file_read("file", SL_FILE_REGULAR, &reason);
        assert_non_null(file);
        assert_int_equal(fread(text, 1, sizeof text, file), strlen(expected[i]));
        assert_string_equal(text, expected[i]);
        fclose(file);
    }
}

static void other_kinds_are_refused(void **state) {
    (void)state;
    const char *reason = NULL;
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(descriptor, (const struct sockaddr *)&address, sizeof address), 0);
    const char *const names[] = {"folder", "fifo", "/dev/zero", "socket"};
    for (int i = 0; i < 4; i++)
        refused(sl_file_read(names[i], SL_FILE_REGULAR, &reason), &reason, "not a regular file");
    refused(sl_file_read("nothing", ALL, &reason), &reason, "No such file or directory");
    refused(sl_file_write("socket", false, ALL, &reason), &reason, "not a regular file");
    refused(sl_file_write("folder", false, ALL, &reason), &reason, "Is a directory");
    refused(sl_file_write("/dev/null", false, SL_FILE_REGULAR, &reason), &reason, "not a regular file");
    refused(sl_file_write("nowhere/file", false, ALL, &reason), &reason, "No such file or directory");
    close(descriptor);
}

static void pipes_without_another_end_are_refused(void **state) {
    (void)state;
    const char *reason = NULL;
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    refused(sl_file_read("fifo", SL_FILE_PIPE, &reason), &reason, "a pipe that nobody writes to");
    refused(sl_file_write("fifo", false, SL_FILE_PIPE, &reason), &reason, "a pipe that nobody reads");
    clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_true(ended.tv_sec - began.tv_sec < 20);
}

/* Forks a process that opens the FIFO with FLAGS after BEFORE milliseconds, and writes "ab", or reads, after AFTER. */
static pid_t other_end(int flags, int before, int after) {
    const pid_t process = fork();
    if (process) return process;
    char text[4];
    nap(before);
    const int descriptor = open("fifo", flags);
    nap(after);
    const bool done = flags == O_WRONLY ? write(descriptor, "ab", 2) == 2
                                        : read(descriptor, text, sizeof text) == 2 && !memcmp(text, "ab", 2);
    _exit(done ? 0 : 1);
}

static void ended_well(pid_t process) {
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
}

static void pipes_wait_for_a_writer(void **state) {
    (void)state;
    const int times[][2] = {{0, 0}, {100, 0}, {0, 2400}};
    for (int i = 0; i < 3; i++) {
        const char *reason;
        char text[4] = "";
        const pid_t process = other_end(O_WRONLY, times[i][0], times[i][1]);
        FILE *file = sl_file_read("fifo", SL_FILE_PIPE, &reason);
        assert_non_null(file);
        assert_int_equal(fread(text, 1, sizeof text, file), 2);
        assert_string_equal(text, "ab");
        fclose(file);
        ended_well(process);
    }
}

static void pipes_wait_for_a_reader(void **state) {
    (void)state;
    const int times[][2] = {{0, 0}, {100, 0}, {0, 200}};
    for (int i = 0; i < 3; i++) {
        const char *reason;
        const pid_t process = other_end(O_RDONLY, times[i][0], times[i][1]);
        FILE *file = sl_file_write("fifo", i == 1, SL_FILE_PIPE, &reason);
        assert_non_null(file);
        assert_true(fputs("ab", file) >= 0);
        assert_int_equal(fclose(file), 0);
        ended_well(process);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_have_names),        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(other_kinds_are_refused), cmocka_unit_test(pipes_without_another_end_are_refused),
        cmocka_unit_test(pipes_wait_for_a_writer), cmocka_unit_test(pipes_wait_for_a_reader),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, enter, leave);
}
