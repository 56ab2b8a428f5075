/* checkpoint_directory.c - finds and removes the checkpoints of a run in a directory: whole files, and indices of
 * parts. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/formats/stores/store_parts.h"
#include "layers/training/checkpoint.h"
#include "spmd/base/memory.h"

static const char prefix[] = "step-", suffix[] = ".safetensors", torn[] = ".tmp", part_word[] = ".part-", of[] = "-of-";
enum { DIGITS = 8, MOST_DIGITS = 18 };

/* ---- names ---- */

/* Writes a checkpoint's path; END follows the number of steps. */
static int print_name(const char *directory, int64_t step, const char *end, char path[SL_MAX_PATH],
                      struct sl_error *error) {
    const int length = snprintf(path, SL_MAX_PATH, "%s/%s%0*" PRId64 "%s", directory, prefix, DIGITS, step, end);
    if (length < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", directory);
}

int sl_checkpoint_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error) {
    return print_name(directory, step, suffix, path, error);
}

int sl_checkpoint_index_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error) {
    return print_name(directory, step, SL_CHECKPOINT_INDEX, path, error);
}

int sl_checkpoint_part_name(const char *directory, int64_t step, int part, int parts, char path[SL_MAX_PATH],
                            struct sl_error *error) {
    char end[64];
    snprintf(end, sizeof end, "%s%d%s%d%s", part_word, part, of, parts, suffix);
    return print_name(directory, step, end, path, error);
}

/* Kinds of names in a checkpoint directory. */
enum kind { NONE, WHOLE, INDEX, PART, TORN };

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), last = strlen(end);
    return length >= last && !strcmp(text + length - last, end);
}

static bool skip(const char **at, const char *word) {
    const size_t length = strlen(word);
    const bool there = !strncmp(*at, word, length);
    if (there) *at += length;
    return there;
}

static bool skip_number(const char **at) {
    const size_t digits = strspn(*at, "0123456789");
    *at += digits;
    return digits > 0;
}

/* Kind of NAME; *STEP receives the number of steps. */
static enum kind kind_of(const char *name, int64_t *step) {
    if (!skip(&name, prefix)) return NONE;
    const size_t digits = strspn(name, "0123456789");
    if (digits < DIGITS || digits > MOST_DIGITS || (digits > DIGITS && *name == '0')) return NONE;
    *step = strtoll(name, NULL, 10);
    name += digits;
    enum kind kind = WHOLE;
    if (skip(&name, SL_CHECKPOINT_INDEX)) {
        kind = INDEX;
    } else {
        if (skip(&name, part_word)) {
            kind = PART;
            if (!skip_number(&name) || !skip(&name, of) || !skip_number(&name)) return NONE;
        }
        if (!skip(&name, suffix)) return NONE;
    }
    if (*name) return ends_with(name, torn) ? TORN : NONE;
    return kind;
}

static bool is_cut(const char *path, struct sl_error *error) {
    return (sl_parts_is_index(path) ? sl_parts_are_cut : sl_safetensors_is_cut)(path, error);
}

/* ---- listing ---- */

/* Entry of a checkpoint; other entries of the directory are not listed. */
struct entry {
    int64_t step;
    enum kind kind;
    char *name;
};
struct list {
    int count, capacity;
    struct entry *entry;
};

static void free_list(struct list *list) {
    for (int i = 0; i < list->count; i++) free(list->entry[i].name);
    free(list->entry);
}

/* Most steps first; within a step the whole file, then the index, then parts. */
static int by_step(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static bool add(struct list *list, const char *name, int64_t step, enum kind kind) {
    struct entry *grown = sl_grow(list->entry, list->count, &list->capacity, 16, sizeof *grown);
    if (!grown) return false;
    list->entry = grown;
    grown[list->count] = (struct entry){step, kind, strdup(name)};
    return grown[list->count++].name;
}

/* Lists the directory. Free LIST also after a failure. */
static int list_all(const char *directory, struct list *list, struct sl_error *error) {
    DIR *open = opendir(directory);
    *list = (struct list){0};
    if (!open) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", directory, strerror(errno));
    bool fits = true;
    for (const struct dirent *entry; fits && (entry = readdir(open));) {
        int64_t step;
        const enum kind kind = kind_of(entry->d_name, &step);
        if (kind) fits = add(list, entry->d_name, step, kind);
    }
    closedir(open);
    if (!fits) return sl_error_set(error, SL_FAILED, "%s: no memory to list it", directory);
    if (list->count) qsort(list->entry, (size_t)list->count, sizeof *list->entry, by_step);
    return SL_OK;
}

static bool counts(const struct entry *entry) { return entry->kind == WHOLE || entry->kind == INDEX; }

static int path_of(const char *directory, const struct entry *entry, char path[SL_MAX_PATH], struct sl_error *error) {
    return print_name(directory, entry->step, entry->kind == INDEX ? SL_CHECKPOINT_INDEX : suffix, path, error);
}

int sl_checkpoint_latest(const char *directory, char path[SL_MAX_PATH], struct sl_error *skipped,
                         struct sl_error *error) {
    struct sl_error reason = {0}, first = {0};
    struct list list;
    const int status = list_all(directory, &list, &reason);
    bool found = false;
    for (int i = 0; i < list.count && status == SL_OK && !found; i++) {
        if (!counts(&list.entry[i])) continue;
        found = !path_of(directory, &list.entry[i], path, &reason) && !is_cut(path, &reason);
        if (!found && !first.status) first = reason;
    }
    free_list(&list);
    if (skipped) *skipped = first;
    if (found) return SL_OK;
    if (status) return sl_error_set(error, reason.status, "%s", reason.message);
    if (first.status) return sl_error_set(error, SL_BAD_INPUT, "no checkpoint is whole: %s", first.message);
    return sl_error_set(error, SL_BAD_INPUT, "%s: there is no checkpoint, %s00000000%s or after more steps", directory,
                        prefix, suffix);
}

/* Splits PATH into DIRECTORY and the checkpoint's step, which is returned; -1 if the name is not a checkpoint's. */
static int64_t split(const char *path, char directory[SL_MAX_PATH]) {
    const char *slash = strrchr(path, '/');
    int64_t step;
    const enum kind kind = kind_of(slash ? slash + 1 : path, &step);
    if (kind != WHOLE && kind != INDEX) return -1;
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
    struct list list;
    if (step < 0) return false;
    const int status = list_all(directory, &list, NULL);
    bool found = false;
    for (int i = 0; i < list.count && status == SL_OK && !found; i++)
        found = counts(&list.entry[i]) && list.entry[i].step < step &&
                !path_of(directory, &list.entry[i], older, NULL) && !is_cut(older, NULL);
    free_list(&list);
    return found;
}

int64_t sl_checkpoint_last_step(const char *directory) {
    char path[SL_MAX_PATH];
    return sl_checkpoint_latest(directory, path, NULL, NULL) ? -1 : sl_checkpoint_step_of(path);
}

bool sl_checkpoint_at(const char *directory, int64_t step, char path[SL_MAX_PATH]) {
    if (!sl_checkpoint_name(directory, step, path, NULL) && !access(path, F_OK)) return true;
    if (!sl_checkpoint_index_name(directory, step, path, NULL) && !access(path, F_OK)) return true;
    sl_checkpoint_name(directory, step, path, NULL);
    return false;
}

/* ---- removing ---- */

static int remove_entry(const char *directory, const struct entry *entry, struct sl_error *error) {
    char path[SL_MAX_PATH];
    if (snprintf(path, sizeof path, "%s/%s", directory, entry->name) >= (int)sizeof path)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", directory);
    if (!unlink(path) || errno == ENOENT || entry->kind == TORN) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
}

/* Removes entries FIRST to END of one step; KEEPS: the step's checkpoint stays. Without a checkpoint, no parts stay. */
static int prune_step(const char *directory, const struct entry *first, const struct entry *end, bool keeps,
                      struct sl_error *error) {
    bool whole = false, index = false;
    for (const struct entry *entry = first; entry < end; entry++) {
        const bool stays = keeps && (entry->kind == PART ? index : entry->kind == WHOLE || !whole);
        whole |= entry->kind == WHOLE;
        if (entry->kind == INDEX && stays) index = true;
        if (entry->kind == TORN || !stays) SL_TRY(remove_entry(directory, entry, error));
        /* Parts are removed after the removal of the index is on the disk. */
        if (entry->kind == INDEX && !stays) {
            char path[SL_MAX_PATH];
            SL_TRY(path_of(directory, entry, path, error));
            sl_sync_parent(path);
        }
    }
    return SL_OK;
}

int sl_checkpoint_prune(const char *directory, int64_t step, int keep, int64_t best, struct sl_error *error) {
    struct list list;
    struct sl_error reason;
    int status = list_all(directory, &list, &reason);
    if (status) status = sl_error_set(error, SL_FAILED, "%s", reason.message);
    int older = 0; /* checkpoints with fewer steps so far */
    for (int i = 0, end; i < list.count && status == SL_OK; i = end) {
        const struct entry *entry = &list.entry[i];
        for (end = i; end < list.count && list.entry[end].step == entry->step;) end++;
        const bool older_one = entry->step < step && counts(entry);
        const bool stays = entry->step >= step || entry->step == best || (older_one && ++older < keep);
        status = prune_step(directory, entry, list.entry + end, stays, error);
    }
    free_list(&list);
    return status;
}
