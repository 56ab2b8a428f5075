/* streams.c - stdin, stdout and stderr. */
#include "drivers/common/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void sl_streams_begin(void) {
    signal(SIGXFSZ, SIG_IGN);
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) >= 0) continue;
        /* The lowest free number is this one. */
        open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

int sl_stdout_finish(struct sl_error *error) {
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return SL_OK;
    return sl_error_set(error, SL_FAILED, "stdout: %s", errno ? strerror(errno) : "could not be written");
}
