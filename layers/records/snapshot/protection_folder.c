/* protection_folder.c - names, finds and removes the folder in memory of a run's latest steps. */
#include "layers/records/snapshot/protection_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/stores/safetensors.h"
#include "layers/formats/stores/store_parts.h"
#include "spmd/base/hash.h"

/* ---- names ---- */

/* Returns the real path of SAVE, or NULL with errno set. SAVE itself may not exist yet, but its parent folder must. The
 * caller frees the path. */
static char *real_path(const char *save) {
    char *real = realpath(save, NULL), *whole = NULL, *parent = NULL;
    int length = (int)strlen(save), begin;
    if (real || errno != ENOENT) return real;
    while (length > 1 && save[length - 1] == '/') length--;
    for (begin = length; begin > 0 && save[begin - 1] != '/'; begin--) continue;
    if (asprintf(&parent, "%.*s", begin ? begin : 1, begin ? save : ".") < 0) return NULL;
    real = realpath(parent, NULL);
    free(parent);
    if (real && asprintf(&whole, "%s/%.*s", strcmp(real, "/") ? real : "", length - begin, save + begin) < 0)
        whole = NULL;
    free(real);
    return whole;
}

int sl_protection_name(const char *save, char folder[SL_MAX_PATH], struct sl_error *error) {
    char digits[SL_HASH_DIGITS + 1], *real = real_path(save);
    if (!real) return sl_error_set(error, SL_BAD_INPUT, "--protect: %s: %s", save, strerror(errno));
    snprintf(folder, SL_MAX_PATH, "%s/%s%ld-%s", SL_PROTECTION_ROOT, SL_PROTECTION_PREFIX, (long)getuid(),
             sl_hash_print(sl_hash(real, strlen(real)), digits));
    free(real);
    return SL_OK;
}

void sl_protection_part(const char *start, int place, int part, int parts, char path[SL_MAX_PATH]) {
    snprintf(path, SL_MAX_PATH, "%.*s/%d.part-%d-of-%d.safetensors", SL_MAX_PATH - 100, start, place, part, parts);
}

bool sl_protection_is_own(const char *folder) {
    struct stat about;
    return !lstat(folder, &about) && S_ISDIR(about.st_mode) && about.st_uid == getuid() && !(about.st_mode & 077);
}

/* ---- making ---- */

/* Writes REAL to the folder's file `save`. */
static bool note_save(const char *folder, const char *real) {
    char path[SL_MAX_PATH];
    snprintf(path, sizeof path, "%.*s/save", SL_MAX_PATH - 10, folder);
    FILE *file = fopen(path, "w");
    bool written = file && fputs(real, file) >= 0;
    if (file) written = !fclose(file) && written;
    return written;
}

static bool make_start(const char *folder, char start[SL_MAX_PATH]) {
    if (*start) return !mkdir(start, 0700);
    snprintf(start, SL_MAX_PATH, "%.*s/XXXXXX", SL_MAX_PATH - 10, folder);
    return mkdtemp(start);
}

int sl_protection_make(const char *folder, const char *real, char start[SL_MAX_PATH], struct sl_error *error) {
    if (mkdir(folder, 0700) && errno != EEXIST)
        return sl_error_set(error, SL_BAD_INPUT, "--protect: %s cannot be made: %s", folder, strerror(errno));
    if (!sl_protection_is_own(folder))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--protect: %s is no folder of this user alone: remove it, or give --protect 0", folder);
    if (note_save(folder, real) && make_start(folder, start)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--protect: no folder can be made in %s: %s", folder, strerror(errno));
}

/* ---- lists ---- */

/* Calls USE with the path of each entry of FOLDER. */
static void each_entry(const char *folder, void (*use)(const char *path, void *arg), void *arg) {
    DIR *open = opendir(folder);
    char path[SL_MAX_PATH];
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < SL_MAX_PATH) use(path, arg);
    }
    if (open) closedir(open);
}

/* ---- removing ---- */

static void remove_file(const char *path, void *arg) {
    (void)arg;
    unlink(path);
}

/* Whether the entry PATH of the folder stays beside the file EXCEPT: it contains EXCEPT, or it is `save`, or, if the
 * folder contains EXCEPT, `command`. */
static bool stays(const char *path, const char *except) {
    const size_t length = strlen(path), begin = (size_t)(strrchr(path, '/') + 1 - path);
    if (!strncmp(path, except, length) && except[length] == '/') return true;
    return !strcmp(path + begin, "save") ||
           (!strcmp(path + begin, SL_PROTECTION_COMMAND) && !strncmp(path, except, begin));
}

/* Removes an entry of the folder, unless it stays. A start's layout goes first: its steps do not count without. */
static void remove_start(const char *path, void *except) {
    char layout[SL_MAX_PATH];
    if (except && stays(path, except)) return;
    if (!unlink(path) || (errno != EISDIR && errno != EPERM)) return;
    if (snprintf(layout, sizeof layout, "%s/" SL_PROTECTION_LAYOUT, path) < SL_MAX_PATH) unlink(layout);
    each_entry(path, remove_file, NULL);
    rmdir(path);
}

void sl_protection_remove(const char *folder, const char *except) {
    if (!sl_protection_is_own(folder)) return;
    each_entry(folder, remove_start, (char *)(uintptr_t)except);
    if (!except) rmdir(folder);
}

static void add_bytes(const char *path, void *bytes) {
    struct stat about;
    if (lstat(path, &about)) return;
    *(double *)bytes += 512.0 * (double)about.st_blocks;
    if (S_ISDIR(about.st_mode)) each_entry(path, add_bytes, bytes);
}

double sl_protection_bytes(const char *save) {
    char folder[SL_MAX_PATH];
    double bytes = 0;
    if (!sl_protection_name(save, folder, NULL) && sl_protection_is_own(folder)) each_entry(folder, add_bytes, &bytes);
    return bytes;
}

static int64_t number_of(const struct sl_store *store, const char *key) {
    const char *text = sl_store_note(store, key);
    return text ? strtoll(text, NULL, 10) : -1;
}

/* Removes a part of another step than that of the index FROM. */
static void remove_other_step(const char *path, void *from) {
    struct sl_store store = {0};
    const long step = strtol(strrchr(from, '-') + 1, NULL, 10);
    if (!strstr(strrchr(path, '/'), ".part-")) return;
    if (sl_safetensors_map(&store, path, NULL) || number_of(&store, "step") != step) unlink(path);
    sl_store_free(&store);
}

bool sl_protection_keep(const char *folder, const char *from) {
    char start[SL_MAX_PATH];
    const size_t length = strlen(folder);
    const bool own = from && !strncmp(from, folder, length) && from[length] == '/';
    sl_protection_remove(folder, from ? from : "");
    if (!own || !sl_protection_is_own(folder)) return false;
    snprintf(start, sizeof start, "%.*s", (int)(strrchr(from, '/') - from), from);
    each_entry(start, remove_other_step, (char *)(uintptr_t)from);
    return !access(start, F_OK);
}

/* ---- finding ---- */

/* A step in a folder of a start. */
struct found {
    char start[SL_MAX_PATH];
    bool spread; /* other hosts may have some parts */
    int place, parts, missing;
    int64_t step, samples, hosts; /* hosts is -1 if there is one */
};

static int64_t read_part(const char *path, uint64_t *root, int64_t *samples) {
    struct sl_store store = {0};
    const bool valid = sl_safetensors_map(&store, path, NULL) == SL_OK && store.checksums;
    const int64_t step = valid ? number_of(&store, "step") : -1;
    *samples = valid ? number_of(&store, "samples") : -1;
    if (root) *root = store.root;
    sl_store_free(&store);
    return step;
}

int64_t sl_protection_read_part(const char *path, uint64_t *root) {
    int64_t samples;
    return read_part(path, root, &samples);
}

/* Returns whether the step counts, and fills in its numbers. ROOT [parts], the roots of the parts, may be NULL. */
static bool counts(struct found *found, uint64_t *root) {
    char path[SL_MAX_PATH];
    found->step = -1;
    found->missing = 0;
    for (int part = 1; part <= found->parts; part++) {
        sl_protection_part(found->start, found->place, part, found->parts, path);
        if (found->spread && access(path, F_OK)) {
            found->missing++;
            continue;
        }
        const int64_t step = read_part(path, root ? &root[part - 1] : NULL, &found->samples);
        if (step < 0 || (found->step >= 0 && step != found->step)) return false;
        found->step = step;
    }
    return found->step >= 0;
}

static bool name_layout(const char *start, char layout[SL_MAX_PATH]) {
    return snprintf(layout, SL_MAX_PATH, "%s/" SL_PROTECTION_LAYOUT, start) < SL_MAX_PATH;
}

int sl_protection_parts(const char *start) {
    char layout[SL_MAX_PATH];
    return name_layout(start, layout) ? sl_parts_count(layout, NULL) : 0;
}

/* Looks at the folder of a start. If it has a later step than LATEST, LATEST becomes this step. */
static void look(const char *path, void *latest) {
    struct found *best = latest, found = {0};
    struct sl_store notes = {0};
    char layout[SL_MAX_PATH];
    if (!name_layout(path, layout) || access(layout, F_OK)) return;
    snprintf(found.start, sizeof found.start, "%s", path);
    found.parts = sl_parts_count(layout, &notes);
    found.hosts = number_of(&notes, SL_PROTECTION_HOSTS);
    found.spread = found.hosts > 2;
    sl_store_free(&notes);
    for (found.place = 0; found.place < SL_PROTECTION_PLACES; found.place++)
        if (counts(&found, NULL) && found.step > best->step) *best = found;
}

static int64_t find_latest(const char *save, struct found *latest) {
    char folder[SL_MAX_PATH];
    *latest = (struct found){.step = -1};
    if (!sl_protection_name(save, folder, NULL) && sl_protection_is_own(folder)) each_entry(folder, look, latest);
    return latest->step;
}

int64_t sl_protection_step(const char *save) {
    struct found latest;
    return find_latest(save, &latest);
}

static int set_number(struct sl_store *notes, const char *key, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    return sl_store_set_note(notes, key, text);
}

/* ---- leaving hosts ---- */

enum { LEAVE, LEFT };

/* Writes the path of a file of FOLDER by which a run leaves its hosts. */
static void name_word(const char *folder, int word, char path[SL_MAX_PATH]) {
    snprintf(path, SL_MAX_PATH, "%.*s/%s", SL_MAX_PATH - 10, folder, word == LEAVE ? "leave" : "left");
}

static bool has_word(const char *folder, int word) {
    char path[SL_MAX_PATH];
    name_word(folder, word, path);
    return !access(path, F_OK);
}

static void say_word(const char *folder, int word) {
    char path[SL_MAX_PATH];
    name_word(folder, word, path);
    const int file = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
}

bool sl_protection_ask_to_leave(const char *save) {
    struct found latest;
    char folder[SL_MAX_PATH];
    if (find_latest(save, &latest) < 0 || latest.hosts < 0 || sl_protection_name(save, folder, NULL)) return false;
    if (!has_word(folder, LEFT)) say_word(folder, LEAVE);
    return true;
}

bool sl_protection_has_left(const char *save) {
    char folder[SL_MAX_PATH];
    return !sl_protection_name(save, folder, NULL) && sl_protection_is_own(folder) && has_word(folder, LEFT);
}

bool sl_protection_is_asked_to_leave(const char *folder) { return has_word(folder, LEAVE); }
void sl_protection_say_left(const char *folder) { say_word(folder, LEFT); }

/* Writes the step's index. */
static int write_index(struct found *found, const char *index) {
    struct sl_store notes = {0};
    struct sl_part *part = calloc((size_t)found->parts, sizeof *part);
    uint64_t *root = calloc((size_t)found->parts, sizeof *root);
    char(*name)[SL_MAX_PATH] = calloc((size_t)found->parts, sizeof *name), layout[SL_MAX_PATH];
    int status = part && root && name && counts(found, root) && name_layout(found->start, layout) ? SL_OK : SL_FAILED;
    for (int i = 0; i < found->parts && status == SL_OK; i++) {
        sl_protection_part(found->start, found->place, i + 1, found->parts, name[i]);
        part[i] = (struct sl_part){name[i], root[i]};
    }
    if (status == SL_OK) status = set_number(&notes, "step", found->step);
    if (status == SL_OK) status = set_number(&notes, "samples", found->samples);
    if (status == SL_OK) status = sl_parts_renew_index(layout, &notes, found->parts, part, index, NULL);
    sl_store_free(&notes);
    free(part);
    free(root);
    free(name);
    return status;
}

/* ---- other hosts ---- */

static bool name_notes(const char *save, char path[SL_MAX_PATH]) {
    return snprintf(path, SL_MAX_PATH, "%s/memory.safetensors", save) < SL_MAX_PATH;
}

int sl_protection_tell(const char *save, const char *index, struct sl_error *error) {
    struct sl_store notes = {.checksums = true};
    char path[SL_MAX_PATH], start[SL_MAX_PATH], layout[SL_MAX_PATH];
    snprintf(start, sizeof start, "%.*s", (int)(strrchr(index, '/') - index), index);
    if (!name_notes(save, path) || !name_layout(start, layout))
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", save);
    const bool read = sl_parts_count(layout, &notes) > 0;
    const int status = read ? sl_safetensors_write(&notes, path, error)
                            : sl_error_set(error, SL_FAILED, "%s: its notes cannot be read", layout);
    sl_store_free(&notes);
    return status;
}

void sl_protection_tell_no_more(const char *save) {
    char path[SL_MAX_PATH];
    if (name_notes(save, path)) unlink(path);
}

bool sl_protection_is_in_memory(const char *index) {
    static const char memory[] = SL_PROTECTION_ROOT "/" SL_PROTECTION_PREFIX;
    return !strncmp(index, memory, strlen(memory));
}

bool sl_protection_is_elsewhere(const char *index, const char *save, char path[SL_MAX_PATH]) {
    return sl_protection_is_in_memory(index) && access(index, F_OK) && name_notes(save, path);
}

/* ---- whole steps ---- */

static bool is_whole(const char *index, int (*between)(void *arg), void *arg) {
    struct sl_store store = {0};
    const bool whole = !sl_parts_map(&store, index, NULL) && !sl_safetensors_verify(&store, between, arg, NULL);
    sl_store_free(&store);
    return whole;
}

bool sl_protection_complete(const char *start, int place, int parts, int64_t step, char index[SL_MAX_PATH],
                            int (*between)(void *arg), void *arg) {
    struct found found = {.place = place, .parts = parts};
    snprintf(found.start, sizeof found.start, "%s", start);
    return !sl_checkpoint_index_name(start, step, index, NULL) && !write_index(&found, index) && found.step == step &&
           is_whole(index, between, arg);
}

int64_t sl_protection_find(const char *save, char index[SL_MAX_PATH], bool *whole) {
    struct found latest;
    if (find_latest(save, &latest) < 0) return -1;
    if (whole) *whole = !latest.missing;
    const bool found = latest.missing ? !sl_checkpoint_index_name(latest.start, latest.step, index, NULL)
                                      : sl_protection_complete(latest.start, latest.place, latest.parts, latest.step,
                                                               index, NULL, NULL);
    return found ? latest.step : -1;
}
