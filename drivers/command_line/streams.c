/* streams.c - stdin, stdout and stderr. */
#include "drivers/command_line/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Handles SIGBUS: a mapped file has become shorter, and its end can no longer be read. */
static void tell_bus_error(int number) {
    static char reason[] = ": a file that it reads has become shorter meanwhile (SIGBUS)\n";
    char *name = program_invocation_short_name;
    const struct iovec line[] = {{name, strlen(name)}, {reason, sizeof reason - 1}};
    const ssize_t told = writev(STDERR_FILENO, line, 2);
    (void)number, (void)told; /* a failed write cannot be reported */
    _exit(SL_FAILED);
}

void sl_streams_begin(void) {
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGBUS, tell_bus_error);
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) >= 0) continue;
        /* open() returns the lowest free number: this descriptor. */
        open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

int sl_stdout_finish(struct sl_error *error) {
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return SL_OK;
    return sl_error_set(error, SL_FAILED, "stdout: %s", errno ? strerror(errno) : "could not be written");
}
