/* test_finish.c - the end of a driver whose run has failed: the line on stderr does not wait for a reader of stdout, on
 * which a launcher that ends the run may leave an object of thousands of coordinates unread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/waits.h"
#include "drivers/common/options.h"

enum { COORDINATES = 4000, PATIENCE_MS = 20000 }; /* their object is longer than a pipe holds */

static void fail_with_waits(int out, int err) {
    static struct sl_waiting waiting[COORDINATES];
    struct sl_waits waits = {.coordinates = COORDINATES, .coordinate = waiting};
    struct sl_error error = {.status = SL_FAILED, .message = "coordinate 1 is lost"};
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    sl_options_finish(&(struct sl_options){.program = "test", .waits = &waits}, SL_FAILED, &error);
}

static void unread_stdout(void **state) {
    (void)state;
    int out[2], err[2];
    char line[100] = "";
    assert_int_equal(pipe(out) | pipe(err), 0);
    const pid_t child = fork();
    if (child == 0) {
        fail_with_waits(out[1], err[1]);
        _exit(0);
    }
    struct pollfd told = {.fd = err[0], .events = POLLIN};
    const int came = poll(&told, 1, PATIENCE_MS);
    if (came == 1) assert_true(read(err[0], line, sizeof line - 1) > 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_string_equal(line, "test: coordinate 1 is lost\n");
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(unread_stdout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
