/* draft.c - a file to be renamed to its path once it is complete. */
#include "layers/formats/files/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(SL_MAX_PATH >= PATH_MAX, "room for what realpath finds");

/* Writes the directory of PATH to DIRECTORY[SL_MAX_PATH]. */
static void directory_of(const char *path, char *directory) {
    snprintf(directory, SL_MAX_PATH, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash) {
        slash[slash == directory] = '\0'; /* "/" stays */
    } else {
        strcpy(directory, ".");
    }
}

/* A directory's entry is data of the directory. */
int sl_sync_parent(const char *path) {
    char trimmed[SL_MAX_PATH], directory[SL_MAX_PATH];
    snprintf(trimmed, sizeof trimmed, "%s", path);
    for (size_t end = strlen(trimmed); end > 1 && trimmed[end - 1] == '/';) trimmed[--end] = '\0';
    directory_of(trimmed, directory);
    const int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return errno;
    const int number = fsync(descriptor) ? errno : 0;
    close(descriptor);
    return number;
}

/* Writes the file meant by PATH to PLACE[SL_MAX_PATH]. A link without a target counts as the file itself. */
static int find_place(const char *path, enum sl_links links, char *place, struct sl_error *error) {
    if (links == SL_LINKS_REPLACED || !realpath(path, place)) snprintf(place, SL_MAX_PATH, "%s", path);
    if (strlen(path) < SL_MAX_PATH && strlen(place) + 32 <= SL_MAX_PATH) return SL_OK; /* with the temporary suffix */
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
}

/* Checks that PLACE, found for PATH, can be written. */
static int check_place(const char *path, const char *place, struct sl_error *error) {
    struct stat file;
    char directory[SL_MAX_PATH];
    if (!lstat(place, &file) && !S_ISREG(file.st_mode) && !S_ISLNK(file.st_mode))
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a regular file: only those are replaced", path);
    directory_of(place, directory);
    if (access(directory, W_OK | X_OK))
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    return SL_OK;
}

int sl_draft_check(const char *path, enum sl_links links, struct sl_error *error) {
    char place[SL_MAX_PATH];
    SL_TRY(find_place(path, links, place, error));
    return check_place(path, place, error);
}

int sl_draft_open(struct sl_draft *draft, const char *path, enum sl_links links, struct sl_error *error) {
    draft->open = false;
    SL_TRY(find_place(path, links, draft->path, error));
    SL_TRY(check_place(path, draft->path, error));
    snprintf(draft->temporary, SL_MAX_PATH, "%s.%ld.tmp", draft->path, (long)getpid());
    unlink(draft->temporary); /* left by a killed process with the same number */
    draft->descriptor = open(draft->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    draft->open = draft->descriptor >= 0;
    if (draft->open) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: cannot be written: %s", draft->temporary, strerror(errno));
}

int sl_draft_write(const struct sl_draft *draft, const void *bytes, size_t count) {
    for (const char *left = bytes; count > 0;) {
        const ssize_t written = write(draft->descriptor, left, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        left += written;
        count -= (size_t)written;
    }
    return 0;
}

int sl_draft_finish(struct sl_draft *draft, int number, struct sl_error *error) {
    if (!number && fsync(draft->descriptor)) number = errno;
    if (number) {
        sl_draft_give_up(draft);
    } else {
        draft->open = false;
        if (close(draft->descriptor)) number = errno;
        if (!number && rename(draft->temporary, draft->path)) number = errno;
        if (number)
            unlink(draft->temporary);
        else
            number = sl_sync_parent(draft->path);
    }
    if (!number) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: cannot be written: %s", draft->path, strerror(number));
}

void sl_draft_give_up(struct sl_draft *draft) {
    if (!draft || !draft->open) return;
    close(draft->descriptor);
    unlink(draft->temporary);
    draft->open = false;
}
