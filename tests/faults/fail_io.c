/* fail_io.c - preloaded into a program, makes one of its calls on files fail, or that one and all after it.
 *
 *     LD_PRELOAD=fail_io.so IO_CALL=NAME [IO_NTH=N] [IO_AFTER=1] [IO_ERROR=EIO|ENOSPC|EINTR|short|kill] [IO_COUNT=FILE]
 * PROGRAM ...
 *
 * NAME is open, fallocate, write, fsync, rename, unlink or close. Counts the program's own calls, not those of its
 * libraries (stdio's neither), from the start of main on. IO_COUNT receives their number when the program ends. Without
 * IO_NTH none fails. short: half of the bytes are written, which is no error. kill: SIGKILL ends the program before
 * the call. A close that fails has closed, as on Linux. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/faults/counted.h"

typedef int opens(const char *, int, ...);
typedef ssize_t writes(int, const void *, size_t);
typedef ssize_t writes_at(int, const void *, size_t, off_t);
typedef int takes_file(int);
typedef int takes_range(int, off_t, off_t);
typedef int takes_path(const char *);
typedef int takes_paths(const char *, const char *);

static opens *real_open;
static writes *real_write;
static writes_at *real_pwrite;
static takes_file *real_fsync, *real_fdatasync, *real_close;
static takes_range *real_posix_fallocate;
static takes_path *real_unlink;
static takes_paths *real_rename;
static const char *chosen = "";
static int error; /* 0: short counts */
static bool kills;

/* A pointer to data becomes one to a function, which C has no cast for. */
#define FIND(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol = dlsym(RTLD_NEXT, #name);                                                                        \
        memcpy(&real_##name, &symbol, sizeof symbol);                                                                  \
    } while (0)

__attribute__((constructor)) static void open_faults(void) {
    FIND(open);
    FIND(write);
    FIND(pwrite);
    FIND(posix_fallocate);
    FIND(fsync);
    FIND(fdatasync);
    FIND(close);
    FIND(unlink);
    FIND(rename);
    const char *name = getenv("IO_ERROR");
    if (getenv("IO_CALL")) chosen = getenv("IO_CALL");
    error = !name || !strcmp(name, "EIO") ? EIO : !strcmp(name, "ENOSPC") ? ENOSPC : !strcmp(name, "EINTR") ? EINTR : 0;
    kills = name && !strcmp(name, "kill");
    begin_to_count("IO_NTH", "IO_AFTER");
}

__attribute__((destructor)) static void close_faults(void) { tell_count("IO_COUNT"); }

/* Whether this call, of NAME, that returns to CALLER is to fail. */
static bool fails(const char *name, const void *caller) {
    if (!ready || strcmp(name, chosen) != 0 || !is_own(caller) || !is_hit()) return false;
    if (kills) raise(SIGKILL);
    errno = error;
    return true;
}

#define FAILS(name) fails(name, __builtin_return_address(0))

static int open_with(const char *path, int flags, va_list more) {
    const bool creates = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    return real_open(path, flags, creates ? va_arg(more, mode_t) : 0);
}

int open(const char *path, int flags, ...) {
    if (FAILS("open")) return -1;
    va_list more;
    va_start(more, flags);
    const int file = open_with(path, flags, more);
    va_end(more);
    return file;
}

/* Offsets have 64 bits with either name. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));

/* The rest of BYTES if a count is short: half of them, of one byte that one. */
static size_t half(size_t bytes) { return bytes > 1 ? bytes / 2 : bytes; }

ssize_t write(int file, const void *data, size_t bytes) {
    if (!FAILS("write")) return real_write(file, data, bytes);
    return error ? -1 : real_write(file, data, half(bytes));
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t at) {
    if (!FAILS("write")) return real_pwrite(file, data, bytes, at);
    return error ? -1 : real_pwrite(file, data, half(bytes), at);
}

ssize_t pwrite64(int file, const void *data, size_t bytes, off_t at) __attribute__((alias("pwrite")));

/* Returns the number of the error, and does without errno. */
int posix_fallocate(int file, off_t at, off_t bytes) {
    return FAILS("fallocate") ? error : real_posix_fallocate(file, at, bytes);
}

int posix_fallocate64(int file, off_t at, off_t bytes) __attribute__((alias("posix_fallocate")));

int fsync(int file) { return FAILS("fsync") ? -1 : real_fsync(file); }

int fdatasync(int file) { return FAILS("fsync") ? -1 : real_fdatasync(file); }

int unlink(const char *path) { return FAILS("unlink") ? -1 : real_unlink(path); }

int rename(const char *from, const char *to) { return FAILS("rename") ? -1 : real_rename(from, to); }

int close(int file) {
    const bool lost = FAILS("close");
    const int result = real_close(file);
    if (lost) errno = error;
    return lost ? -1 : result;
}
