/* draft.c - a file that takes its place once it is whole. */
#include "layers/storage/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(SL_MAX_PATH >= PATH_MAX, "room for what realpath finds");

/* Writes the directory that PATH is in to DIRECTORY[SL_MAX_PATH]. */
static void directory_of(const char *path, char *directory) {
    snprintf(directory, SL_MAX_PATH, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash) {
        slash[slash == directory] = '\0'; /* "/" stays */
    } else {
        strcpy(directory, ".");
    }
}

/* Makes the renaming last: an entry of a directory is the directory's data. Returns 0, or the number of the error. */
static int sync_directory_of(const char *path) {
    char directory[SL_MAX_PATH];
    directory_of(path, directory);
    const int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return errno;
    const int number = fsync(descriptor) ? errno : 0;
    close(descriptor);
    return number;
}

int sl_draft_check(const char *path, struct sl_error *error) {
    struct stat file;
    char directory[SL_MAX_PATH];
    if (strlen(path) + 32 > SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
    if (!stat(path, &file) && !S_ISREG(file.st_mode))
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a regular file: only those are replaced", path);
    directory_of(path, directory);
    if (access(directory, W_OK | X_OK))
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    return SL_OK;
}

int sl_draft_open(struct sl_draft *draft, const char *path, struct sl_error *error) {
    draft->descriptor = -1;
    SL_TRY(sl_draft_check(path, error));
    if (!realpath(path, draft->path)) strcpy(draft->path, path);
    if (snprintf(draft->temporary, SL_MAX_PATH, "%s.%ld.tmp", draft->path, (long)getpid()) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
    unlink(draft->temporary); /* of a process that had the same number, and was killed */
    draft->descriptor = open(draft->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (draft->descriptor >= 0) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: cannot be written: %s", draft->temporary, strerror(errno));
}

int sl_draft_finish(struct sl_draft *draft, int number, struct sl_error *error) {
    if (!number && fsync(draft->descriptor)) number = errno;
    const int descriptor = draft->descriptor;
    if (number) {
        sl_draft_give_up(draft);
    } else {
        draft->descriptor = -1;
        if (close(descriptor)) number = errno;
        if (!number && rename(draft->temporary, draft->path)) number = errno;
        if (number)
            unlink(draft->temporary);
        else
            number = sync_directory_of(draft->path);
    }
    if (!number) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: cannot be written: %s", draft->path, strerror(number));
}

void sl_draft_give_up(struct sl_draft *draft) {
    if (!draft || draft->descriptor < 0) return;
    close(draft->descriptor);
    unlink(draft->temporary);
    draft->descriptor = -1;
}
