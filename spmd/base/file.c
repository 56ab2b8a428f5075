/* file.c - opens files named by users. */
#include "spmd/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 2000, PAUSE = 10 }; /* milliseconds */

const char *sl_file_kind_name(unsigned mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "a regular file";
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a pipe";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    case S_IFSOCK:
        return "a socket";
    default:
        return "no file";
    }
}

bool sl_file_allows(int kinds, unsigned mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return kinds & SL_FILE_REGULAR;
    case S_IFDIR:
        return kinds & SL_FILE_DIRECTORY;
    case S_IFIFO:
        return kinds & SL_FILE_PIPE;
    case S_IFCHR:
        return kinds & SL_FILE_DEVICE;
    default:
        return false;
    }
}

/* NULL if the open DESCRIPTOR is a file of one of KINDS; otherwise the reason. */
static const char *examine(int descriptor, int kinds) {
    struct stat file;
    if (fstat(descriptor, &file)) return strerror(errno);
    return sl_file_allows(kinds, file.st_mode) ? NULL : "not a regular file";
}

/* Whether a pipe FILE has or had a writer; true for other files. Polls for a first byte. If none comes, reads without
 * waiting: the end of the file means no writer, EAGAIN a writer. */
static bool has_writer(FILE *file) {
    struct stat about;
    struct pollfd wanted = {.fd = fileno(file), .events = POLLIN};
    if (fstat(wanted.fd, &about) || !S_ISFIFO(about.st_mode) || poll(&wanted, 1, PATIENCE) > 0) return true;
    char byte;
    const ssize_t got = read(wanted.fd, &byte, 1);
    if (got == 1) ungetc((unsigned char)byte, file);
    return got;
}

static FILE *finish(int descriptor, const char *mode, int kinds, const char **reason) {
    FILE *file = NULL;
    *reason = examine(descriptor, kinds);
    if (!*reason && !(file = fdopen(descriptor, mode))) *reason = strerror(errno);
    if (!file) {
        close(descriptor);
        return NULL;
    }
    if (mode[0] == 'r' && !has_writer(file)) {
        *reason = "a pipe that nobody writes to";
        fclose(file);
        return NULL;
    }
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK); /* later reads and writes may wait */
    return file;
}

FILE *sl_file_read(const char *path, int kinds, const char **reason) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (descriptor >= 0) return finish(descriptor, "r", kinds, reason);
    *reason = errno == ENXIO ? "not a regular file" : strerror(errno); /* a socket */
    return NULL;
}

FILE *sl_file_write(const char *path, bool appends, int kinds, const char **reason) {
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (appends ? O_APPEND : O_TRUNC);
    const struct timespec pause = {.tv_nsec = PAUSE * 1000000L};
    for (int waited = 0;; waited += PAUSE) {
        const int descriptor = open(path, flags, 0666);
        if (descriptor >= 0) return finish(descriptor, appends ? "a" : "w", kinds, reason);
        struct stat file;
        const int number = errno;
        const bool pipe = number == ENXIO && !stat(path, &file) && S_ISFIFO(file.st_mode);
        if (pipe && waited < PATIENCE) {
            nanosleep(&pause, NULL);
            continue;
        }
        *reason = pipe ? "a pipe that nobody reads" : number == ENXIO ? "not a regular file" : strerror(number);
        return NULL;
    }
}
