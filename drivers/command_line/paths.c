/* paths.c - checks the files named on a command line. */
#include "drivers/command_line/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/files/file_tree.h"
#include "spmd/base/file.h"

struct use {
    bool writes;
    int kinds;           /* allowed kinds of files */
    const char *allowed; /* the same in words */
    const char *files;   /* pattern for the names of files read or written in a directory */
    const char *missing; /* message if the file is missing; NULL: the code that opens it reports an error, or makes
                          * it */
};
/* Names of checkpoint files, incomplete ones included. */
static const char checkpoints[] = "@(step-*@(.safetensors|.index.json)*|best.json)";
static const struct use uses[] = {
    [SL_PATH_ARGUMENTS] = {false, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DEVICE, "a regular file, a pipe or a device",
                           NULL, NULL},
    [SL_PATH_TEXT] = {false, SL_FILE_REGULAR | SL_FILE_PIPE, "a regular file or a pipe", NULL, NULL},
    [SL_PATH_DATA] = {false, SL_FILE_REGULAR | SL_FILE_DIRECTORY, "a regular file or a directory", "*", NULL},
    [SL_PATH_PUBLISHED] = {false, SL_FILE_REGULAR | SL_FILE_DIRECTORY, "a regular file or a directory", "*",
                           "there is no such file or folder, and names of models are not looked up: a published model "
                           "is a folder (config.json, model.safetensors, tokenizer.json) or a GGUF file; the "
                           "commands under \"A published model\" in README.md get one"},
    [SL_PATH_CHECKPOINT] = {false, SL_FILE_REGULAR | SL_FILE_DIRECTORY, "a regular file or a directory", checkpoints,
                            NULL},
    [SL_PATH_RUN] = {false, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DIRECTORY, "a regular file, a pipe or a directory",
                     "@(metrics|trace)*", NULL},
    [SL_PATH_STREAM] = {true, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DEVICE, "a regular file, a pipe or a device",
                        NULL, NULL},
    [SL_PATH_REPLACED] = {true, SL_FILE_REGULAR, "a regular file", NULL, NULL},
    [SL_PATH_SAVED] = {true, SL_FILE_DIRECTORY, "a directory", checkpoints, NULL},
    [SL_PATH_JOURNAL] = {true, SL_FILE_DIRECTORY, "a directory", "coordinate-*.@(journal|opening|segment)", NULL},
    [SL_PATH_EVENTS] = {true, SL_FILE_DIRECTORY, "a directory", "events.out.tfevents.*", NULL},
};

/* ---- resolving a path ---- */

struct place {
    struct sl_path path;
    bool known;             /* false: the path cannot be resolved; the code that opens it reports the error */
    struct stat file;       /* of the file or, if it is missing, of the last existing directory on the way to it */
    char there[PATH_MAX];   /* the path of FILE */
    char missing[PATH_MAX]; /* the rest of the way; "": the file is there */
};

/* Moves the last name of PATH to the front of MISSING; PATH then names the directory. */
static bool step_up(char path[PATH_MAX], char missing[PATH_MAX]) {
    char rest[PATH_MAX], *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (snprintf(rest, sizeof rest, "%s%s%s", name, *missing ? "/" : "", missing) >= PATH_MAX) return false;
    strcpy(missing, rest);
    if (slash)
        slash[slash == path] = 0; /* "/" stays */
    else
        strcpy(path, ".");
    return true;
}

/* If PATH is a link, replaces it by the link's target. */
static bool follow_link(char path[PATH_MAX]) {
    char target[PATH_MAX], missing[PATH_MAX] = "", whole[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return false;
    target[length] = 0;
    if (target[0] != '/') {
        step_up(path, missing);
        if (snprintf(whole, sizeof whole, "%s/%s", path, target) >= PATH_MAX) return false;
        strcpy(target, whole);
    }
    strcpy(path, target);
    return true;
}

/* Resolves a path. A file that does not exist has no inode: the inode of its directory tells its future place, also
 * at the end of a link. */
static void find_place(struct place *place) {
    enum { MOST_LINKS = 40 }; /* the kernel's limit */
    char path[PATH_MAX];
    int links = 0;
    if (snprintf(path, sizeof path, "%s", place->path.path) >= PATH_MAX) return;
    for (;;) {
        size_t length = strlen(path);
        while (length > 1 && path[length - 1] == '/') path[--length] = 0;
        if (!stat(path, &place->file)) break;
        if (errno != ENOENT) return;
        if (follow_link(path) ? ++links > MOST_LINKS : !step_up(path, place->missing)) return;
    }
    strcpy(place->there, path);
    place->known = true;
}

static bool is_there(const struct place *place) { return place->known && !*place->missing; }

static bool is_directory(const struct place *place) { return is_there(place) && S_ISDIR(place->file.st_mode); }

static bool same_inode(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* ---- one path ---- */

static int check_kind(const struct place *place, struct sl_error *error) {
    const struct use *use = &uses[place->path.use];
    if (use->missing && place->known && *place->missing)
        return sl_error_set(error, SL_BAD_INPUT, "%s %.200s: %s", place->path.option, place->path.path, use->missing);
    if (!is_there(place) || sl_file_allows(use->kinds, place->file.st_mode)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s %.200s: cannot be opened: it is %s, allowed is %s", place->path.option,
                        place->path.path, sl_file_kind_name(place->file.st_mode), use->allowed);
}

/* ---- two paths ---- */

/* Whether A and B are the same file. Devices do not count: they store nothing, so several outputs may go to one. */
static bool are_same(const struct place *a, const struct place *b) {
    if (!a->known || !b->known || !same_inode(&a->file, &b->file) || strcmp(a->missing, b->missing) != 0) return false;
    return *a->missing || !S_ISCHR(a->file.st_mode);
}

/* Returns the rest of the way from DIRECTORY to PLACE, which does not exist; NULL if the way does not lead through
 * DIRECTORY. */
static const char *name_in(const struct place *place, const struct place *directory) {
    const size_t length = strlen(directory->missing);
    if (!same_inode(&place->file, &directory->file) || strncmp(place->missing, directory->missing, length) != 0)
        return NULL;
    const char *name = place->missing + length;
    if (length && *name++ != '/') return NULL;
    return *name && !strchr(name, '/') ? name : NULL;
}

/* Whether an option of this USE names the files that it writes in the directory. */
static bool is_filled(enum sl_path_use use) {
    return use == SL_PATH_SAVED || use == SL_PATH_JOURNAL || use == SL_PATH_EVENTS;
}

/* Whether an option of this USE reads a file, or a directory and its subdirectories. */
static bool is_data(enum sl_path_use use) { return use == SL_PATH_DATA || use == SL_PATH_PUBLISHED; }
static bool is_deep(const struct place *directory) { return is_data(directory->path.use); }

/* Whether PLACE, which does not exist, would lie below DIRECTORY, which does, and would be read with it: not hidden. */
static bool would_be_below(const struct place *place, const struct place *directory) {
    char top[PATH_MAX], way[PATH_MAX];
    if (!realpath(directory->there, top) || !realpath(place->there, way)) return false;
    const size_t length = strlen(top);
    if (strncmp(way, top, length) != 0 || (way[length] && way[length] != '/')) return false;
    return !strstr(way + length, "/.") && place->missing[0] != '.' && !strstr(place->missing, "/.");
}

/* Whether one of the files below DIRECTORY is PLACE, under any name. */
static bool holds_deep(const struct place *directory, const struct place *place) {
    struct sl_file_tree tree;
    struct sl_error error;
    bool found = false;
    sl_file_tree_open(&tree, directory->path.path, &error); /* on error: the code that reads it reports it */
    for (int i = 0; !found && i < tree.files; i++) {
        struct stat file;
        found = !stat(tree.path[i], &file) && same_inode(&file, &place->file);
    }
    sl_file_tree_close(&tree);
    return found;
}

/* Whether PLACE, under any name, is one of the files that DIRECTORY's option reads or writes. */
static bool holds_inode(const struct place *directory, const struct place *place) {
    if (is_deep(directory) && holds_deep(directory, place)) return true;
    DIR *open = opendir(directory->path.path);
    bool found = false;
    for (const struct dirent *entry; open && !found && (entry = readdir(open));) {
        struct stat file;
        found = !fnmatch(uses[directory->path.use].files, entry->d_name, FNM_EXTMATCH) &&
                !fstatat(dirfd(open), entry->d_name, &file, 0) && same_inode(&file, &place->file);
    }
    if (open) closedir(open);
    return found;
}

/* Whether PLACE is, or would become, one of the files that DIRECTORY's option reads or writes. */
static bool holds(const struct place *directory, const struct place *place) {
    const char *pattern = uses[directory->path.use].files;
    if (!pattern || !directory->known || !place->known) return false;
    if (is_there(place))
        return S_ISREG(place->file.st_mode) && is_directory(directory) && holds_inode(directory, place);
    if (is_filled(place->path.use) || (is_there(directory) && !is_directory(directory))) return false;
    if (is_deep(directory) && is_directory(directory)) return would_be_below(place, directory);
    const char *name = name_in(place, directory);
    return name && !fnmatch(pattern, name, FNM_EXTMATCH);
}

static int refuse_file_of(const struct place *place, const struct place *directory, struct sl_error *error) {
    const bool named = place->path.path;
    return sl_error_set(error, SL_BAD_INPUT, "%s%s%.150s: one of the files of %s %.150s", place->path.option,
                        named ? " " : "", named ? place->path.path : "", directory->path.option, directory->path.path);
}

/* Checks FIRST, an output, against SECOND. Checkpoints may lie in a directory of data: they are binary and are not
 * read as text. */
static int check_pair(const struct place *first, const struct place *second, struct sl_error *error) {
    const enum sl_path_use use = first->path.use, other = second->path.use;
    if (use == SL_PATH_SAVED && other == SL_PATH_CHECKPOINT) return SL_OK;
    if (are_same(first, second))
        return sl_error_set(error, SL_BAD_INPUT, "%s and %s name the same %s, %.300s", first->path.option,
                            second->path.option, is_directory(first) ? "directory" : "file",
                            first->path.path ? first->path.path : second->path.path);
    if (is_filled(use) && is_data(other) && !holds(first, second)) return SL_OK;
    if (holds(second, first)) return refuse_file_of(first, second, error);
    return is_filled(use) && holds(first, second) ? refuse_file_of(second, first, error) : SL_OK;
}

/* ---- all paths ---- */

static int check_places(const struct place *place, int count, struct sl_error *error) {
    for (int i = 0; i < count; i++) SL_TRY(check_kind(&place[i], error));
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (uses[place[i].path.use].writes)
                SL_TRY(check_pair(&place[i], &place[j], error));
            else if (uses[place[j].path.use].writes)
                SL_TRY(check_pair(&place[j], &place[i], error));
        }
    }
    return SL_OK;
}

int sl_paths_check(const struct sl_path *path, int count, struct sl_error *error) {
    struct place *place = calloc((size_t)count + 1, sizeof *place);
    if (!place) return sl_error_set(error, SL_FAILED, "out of memory");
    /* If stdout is a pipe or a terminal, it may receive several outputs. */
    struct place *out = &place[count];
    out->path = (struct sl_path){"stdout", NULL, SL_PATH_STREAM};
    out->known = !fstat(STDOUT_FILENO, &out->file) && S_ISREG(out->file.st_mode);
    for (int i = 0; i < count; i++) {
        place[i].path = path[i];
        find_place(&place[i]);
    }
    const int status = check_places(place, count + 1, error);
    free(place);
    return status;
}
