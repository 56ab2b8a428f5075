/* scratch.c - reads and writes a file without a name. */
#include "spmd/base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a file without a name. If the file system has no such files, makes a named one and unlinks it at once. */
static int open_nameless(const char *directory) {
    char path[4096];
    int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
    if (snprintf(path, sizeof path, "%s/shardloop-XXXXXX", directory) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) unlink(path);
    return file;
}

int sl_scratch_open(struct sl_scratch *scratch, const char *directory, size_t bytes, struct sl_error *error) {
    const int file = open_nameless(directory);
    *scratch = (struct sl_scratch){0};
    if (file < 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: no file can be made there: %s", directory, strerror(errno));
    const int full = bytes > 0 ? posix_fallocate(file, 0, (off_t)bytes) : 0;
    if (full) {
        close(file);
        return sl_error_set(error, SL_FAILED, "%s: no room for a file of %zu bytes: %s", directory, bytes,
                            strerror(full));
    }
    *scratch = (struct sl_scratch){file, bytes};
    return SL_OK;
}

void sl_scratch_close(struct sl_scratch *scratch) {
    if (scratch->file > 0) close(scratch->file);
    *scratch = (struct sl_scratch){0};
}

/* COUNT is the result of the last call, DONE the bytes moved by all calls. */
static int fail(ssize_t count, size_t offset, size_t done, const char *what, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "the offload file cannot be %s at byte %zu: %s", what, offset + done,
                        count < 0 ? strerror(errno) : "it ends there");
}

int sl_scratch_read(const struct sl_scratch *scratch, size_t offset, void *to, size_t bytes, struct sl_error *error) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t count = pread(scratch->file, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return fail(count, offset, done, "read", error);
        done += (size_t)count;
    }
    return SL_OK;
}

/* A write behind the end of a shortened file would make it grow again, with zeros in the gap. */
static int check_size(const struct sl_scratch *scratch, struct sl_error *error) {
    struct stat now;
    if (fstat(scratch->file, &now)) return SL_OK; /* the write will report the cause */
    if ((size_t)now.st_size >= scratch->bytes) return SL_OK;
    return sl_error_set(error, SL_FAILED, "the offload file has %zu bytes, not the %zu that it was made with",
                        (size_t)now.st_size, scratch->bytes);
}

int sl_scratch_write(const struct sl_scratch *scratch, size_t offset, const void *from, size_t bytes,
                     struct sl_error *error) {
    if (check_size(scratch, error)) return SL_FAILED;
    for (size_t done = 0; done < bytes;) {
        const ssize_t count = pwrite(scratch->file, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return fail(count, offset, done, "written", error);
        done += (size_t)count;
    }
    return SL_OK;
}

void sl_scratch_expect(const struct sl_scratch *scratch, size_t offset, size_t bytes) {
    posix_fadvise(scratch->file, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}
