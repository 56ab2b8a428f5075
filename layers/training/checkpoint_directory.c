/* checkpoint_directory.c - finds and removes the checkpoints of a run in a directory. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/training/checkpoint.h"
#include "spmd/base/memory.h"

static const char prefix[] = "step-", suffix[] = ".safetensors", torn[] = ".tmp";
enum { DIGITS = 8, MOST_DIGITS = 18 };

int sl_checkpoint_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error) {
    const int length = snprintf(path, SL_MAX_PATH, "%s/%s%0*" PRId64 "%s", directory, prefix, DIGITS, step, suffix);
    if (length < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", directory);
}

/* Reads a checkpoint's name; what comes after it goes to *REST. -1: it is none. */
static int64_t step_of(const char *name, const char **rest) {
    if (strncmp(name, prefix, sizeof prefix - 1)) return -1;
    const char *digit = name + sizeof prefix - 1;
    const size_t digits = strspn(digit, "0123456789");
    if (digits < DIGITS || digits > MOST_DIGITS || strncmp(digit + digits, suffix, sizeof suffix - 1)) return -1;
    *rest = digit + digits + sizeof suffix - 1;
    return strtoll(digit, NULL, 10);
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), last = strlen(end);
    return length >= last && !strcmp(text + length - last, end);
}

static int by_step(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Lists the steps of a directory's checkpoints, the most first; the caller frees them. Returns how many, or -1 with the
 * error set. CLEANS: also removes what crashes have left. */
static int list_steps(const char *directory, bool cleans, int64_t **steps, struct sl_error *error) {
    DIR *open = opendir(directory);
    *steps = NULL;
    if (!open) {
        sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", directory, strerror(errno));
        return -1;
    }
    int count = 0, capacity = 0;
    for (const struct dirent *entry; count >= 0 && (entry = readdir(open));) {
        const char *rest;
        const int64_t step = step_of(entry->d_name, &rest);
        if (step < 0) continue;
        if (cleans && ends_with(rest, torn)) unlinkat(dirfd(open), entry->d_name, 0);
        if (*rest) continue;
        int64_t *grown = sl_grow(*steps, count, &capacity, 16, sizeof *grown);
        if (grown) {
            grown[count++] = step;
            *steps = grown;
        } else {
            sl_error_set(error, SL_FAILED, "%s: no memory to list it", directory);
            count = -1;
        }
    }
    closedir(open);
    if (count > 0) qsort(*steps, (size_t)count, sizeof **steps, by_step);
    return count;
}

int sl_checkpoint_latest(const char *directory, char path[SL_MAX_PATH], struct sl_error *skipped,
                         struct sl_error *error) {
    struct sl_error reason = {0}, first = {0};
    int64_t *steps;
    const int count = list_steps(directory, false, &steps, &reason);
    bool found = false;
    for (int i = 0; i < count && !found; i++) {
        found = !sl_checkpoint_name(directory, steps[i], path, &reason) && !sl_safetensors_is_cut(path, &reason);
        if (!found && !first.status) first = reason;
    }
    free(steps);
    if (skipped) *skipped = first;
    if (found) return SL_OK;
    if (count < 0) return sl_error_set(error, reason.status, "%s", reason.message);
    if (count > 0) return sl_error_set(error, SL_BAD_INPUT, "no checkpoint is whole: %s", first.message);
    return sl_error_set(error, SL_BAD_INPUT, "%s: there is no checkpoint, %s00000000%s or after more steps", directory,
                        prefix, suffix);
}

/* Cuts PATH into DIRECTORY and the checkpoint's step, which is returned; -1 where its name is no checkpoint's. */
static int64_t split(const char *path, char directory[SL_MAX_PATH]) {
    const char *slash = strrchr(path, '/'), *rest;
    const char *name = slash ? slash + 1 : path;
    const int64_t step = step_of(name, &rest);
    if (step < 0 || *rest) return -1;
    snprintf(directory, SL_MAX_PATH, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (!*directory) strcpy(directory, "/");
    return step;
}

int64_t sl_checkpoint_step_of(const char *path) {
    char directory[SL_MAX_PATH];
    return split(path, directory);
}

bool sl_checkpoint_older(const char *path, char older[SL_MAX_PATH]) {
    char directory[SL_MAX_PATH];
    const int64_t step = split(path, directory);
    int64_t *steps;
    if (step < 0) return false;
    const int count = list_steps(directory, false, &steps, NULL);
    bool found = false;
    for (int i = 0; i < count && !found; i++)
        found = steps[i] < step && !sl_checkpoint_name(directory, steps[i], older, NULL) &&
                !sl_safetensors_is_cut(older, NULL);
    free(steps);
    return found;
}

int64_t sl_checkpoint_last_step(const char *directory) {
    char path[SL_MAX_PATH];
    return sl_checkpoint_latest(directory, path, NULL, NULL) ? -1 : sl_checkpoint_step_of(path);
}

int sl_checkpoint_prune(const char *directory, int64_t step, int keep, struct sl_error *error) {
    int64_t *steps;
    struct sl_error reason;
    const int count = list_steps(directory, true, &steps, &reason);
    int status = count < 0 ? sl_error_set(error, SL_FAILED, "%s", reason.message) : SL_OK;
    for (int i = 0, older = 0; i < count && status == SL_OK; i++) {
        char path[SL_MAX_PATH];
        if (steps[i] >= step || ++older < keep) continue;
        status = sl_checkpoint_name(directory, steps[i], path, error);
        if (status == SL_OK && unlink(path) && errno != ENOENT)
            status = sl_error_set(error, SL_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
    }
    free(steps);
    return status;
}
