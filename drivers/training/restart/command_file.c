/* command_file.c - writes and compares the hash of a watcher's command line. */
#include "drivers/training/restart/command_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/records/snapshot/protection_folder.h"
#include "spmd/base/hash.h"

/* Returns false if there is no folder of this user alone. */
static bool path_of(const char *save, char folder[SL_MAX_PATH], char path[SL_MAX_PATH]) {
    return !sl_protection_name(save, folder, NULL) && sl_protection_is_own(folder) &&
           snprintf(path, SL_MAX_PATH, "%s/" SL_PROTECTION_COMMAND, folder) < SL_MAX_PATH;
}

/* Writes the hash of the command line to DIGITS. Relative paths in it depend on the working directory. */
static bool hash_command(const struct sl_options *options, const char *program, const char *command,
                         char digits[SL_HASH_DIGITS + 1]) {
    struct sl_hasher hasher;
    char *directory = realpath(".", NULL);
    sl_hasher_begin(&hasher);
    if (directory) {
        sl_hasher_add_text(&hasher, directory);
        sl_hasher_add_text(&hasher, program);
        sl_hasher_add_text(&hasher, command ? command : "");
        for (int i = 1; i < options->arguments.count; i++) sl_hasher_add_text(&hasher, options->arguments.word[i]);
        sl_hash_print(sl_hasher_end(&hasher), digits);
    }
    const bool known = directory;
    free(directory);
    return known;
}

/* Whether the file PATH has the text WANTED. */
static bool has(const char *path, const char wanted[SL_HASH_DIGITS + 1]) {
    char there[SL_HASH_DIGITS + 1] = "";
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool same = file >= 0 && read(file, there, sizeof there) == SL_HASH_DIGITS && !strcmp(there, wanted);
    if (file >= 0) close(file);
    return same;
}

bool sl_command_file_matches(const char *save, const struct sl_options *options, const char *program,
                             const char *command) {
    char folder[SL_MAX_PATH], path[SL_MAX_PATH], digits[SL_HASH_DIGITS + 1];
    return path_of(save, folder, path) && hash_command(options, program, command, digits) && has(path, digits);
}

void sl_command_file_write(const char *save, const struct sl_options *options, const char *program,
                           const char *command) {
    char folder[SL_MAX_PATH], path[SL_MAX_PATH], digits[SL_HASH_DIGITS + 1];
    if (!path_of(save, folder, path) || !hash_command(options, program, command, digits) || has(path, digits)) return;
    unlink(path);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (write(file, digits, SL_HASH_DIGITS) != SL_HASH_DIGITS) unlink(path);
    close(file);
}

void sl_command_file_remove(const char *save) {
    char folder[SL_MAX_PATH], path[SL_MAX_PATH];
    if (path_of(save, folder, path) && !unlink(path)) rmdir(folder);
}
