/* called.c - argv[0] of this driver, or of another driver in the same folder. */
#include "drivers/command_line/called.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/arguments.h"

const char *sl_shell_word(const char *word, char *text, size_t size) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,./:@%";
    const bool bare = *word && !word[strspn(word, plain)];
    snprintf(text, size, bare ? "%s" : strchr(word, '\'') ? "\"%s\"" : "'%s'", word);
    return text;
}

static int folder_length(void) { return (int)(program_invocation_short_name - program_invocation_name); }

const char *sl_program_beside(const char *driver, char *text, size_t size) {
    snprintf(text, size, "%.*s%s%s", folder_length(), program_invocation_name, sl_program_prefix(), driver);
    return text;
}

const char *sl_program_called(const char *program, char *text, size_t size) {
    const char *const prefix = sl_program_prefix();
    const size_t known = strlen(prefix);
    const int by_command = known && prefix[known - 1] == ' '; /* "shardloop transformer" is two words */
    if (!strncmp(program, prefix, known)) program += known;
    const int name =
        by_command ? 0 : (int)strcspn(program, " "); /* length of the part that belongs to the file's name */
    char file[PATH_MAX], word[PATH_MAX + 2];
    snprintf(file, sizeof file, "%.*s%.*s%.*s", folder_length(), program_invocation_name, (int)known - by_command,
             prefix, name, program);
    snprintf(text, size, "%s%s%s", sl_shell_word(file, word, sizeof word), by_command ? " " : "", program + name);
    return text;
}
