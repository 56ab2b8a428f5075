/* command_file.c - writes and compares the hash of a watcher's command line. */
#include "drivers/training/restart/command_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/records/snapshot/protection_folder.h"
#include "spmd/base/hash.h"

static bool path_beside(const char *folder, char path[SL_MAX_PATH]) {
    return snprintf(path, SL_MAX_PATH, "%s.command", folder) < SL_MAX_PATH;
}

static bool path_of(const char *save, char path[SL_MAX_PATH]) {
    char folder[SL_MAX_PATH];
    return !sl_protection_name(save, folder, NULL) && path_beside(folder, path);
}

/* Writes the hash of the command line to DIGITS. Relative paths in it depend on the working directory. */
static bool hash_command(const struct sl_options *options, const char *command, char digits[SL_HASH_DIGITS + 1]) {
    struct sl_hasher *hasher = sl_hasher_new();
    char *directory = realpath(".", NULL);
    const bool known = hasher && directory;
    if (known) {
        sl_hasher_add_text(hasher, directory);
        sl_hasher_add_text(hasher, command ? command : "");
        for (int i = 1; i < options->arguments.count; i++) sl_hasher_add_text(hasher, options->arguments.word[i]);
        sl_hash_print(sl_hasher_end(hasher), digits);
    }
    sl_hasher_free(hasher);
    free(directory);
    return known;
}

/* All users can make files there: only one of this user counts. */
bool sl_command_file_matches(const char *save, const struct sl_options *options, const char *command) {
    char path[SL_MAX_PATH], wanted[SL_HASH_DIGITS + 1], there[SL_HASH_DIGITS + 1] = "";
    struct stat about;
    if (!path_of(save, path) || !hash_command(options, command, wanted)) return false;
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool own = file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode) && about.st_uid == getuid();
    const bool same = own && read(file, there, sizeof there) == SL_HASH_DIGITS && !strcmp(there, wanted);
    if (file >= 0) close(file);
    return same;
}

void sl_command_file_write(const char *save, const struct sl_options *options, const char *command) {
    char path[SL_MAX_PATH], digits[SL_HASH_DIGITS + 1];
    if (!path_of(save, path) || !hash_command(options, command, digits)) return;
    unlink(path);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (write(file, digits, SL_HASH_DIGITS) != SL_HASH_DIGITS) unlink(path);
    close(file);
}

void sl_command_file_remove(const char *folder) {
    char path[SL_MAX_PATH];
    if (path_beside(folder, path)) unlink(path);
}
