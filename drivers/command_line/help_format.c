/* help_format.c - selects the form of --help, and prints texts in it. */
#include "drivers/command_line/help_format.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum sl_help_format sl_help_format(void) {
    static const char *const names[] = {
        [SL_HELP_TEXT] = "text", [SL_HELP_MAN] = "man",   [SL_HELP_BASH] = "bash",
        [SL_HELP_ZSH] = "zsh",   [SL_HELP_FISH] = "fish", [SL_HELP_COMMANDS] = "commands"};
    const char *const name = getenv("SHARDLOOP_HELP");
    for (int i = 0; name && i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i])) return (enum sl_help_format)i;
    return SL_HELP_TEXT;
}

/* Prints a hyphen as people type it, and escapes backslashes and the characters that begin a request. */
static void print_roff(const char *text, size_t length) {
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            fputs("\\e", stdout);
        else if (text[i] == '-')
            fputs("\\-", stdout);
        else
            putchar(text[i]);
    }
}

void sl_print_roff(const char *text) { print_roff(text, strlen(text)); }

void sl_roff_begin(const char *name, const char *summary, const char *version) {
    const char *const end = strstr(summary, ". ");
    size_t length = end ? (size_t)(end - summary) : strlen(summary);
    if (length && summary[length - 1] == '.') length--;
    fputs(".TH \"", stdout);
    for (const char *letter = name; *letter; letter++) putchar(toupper((unsigned char)*letter));
    printf("\" 1 \"\" \"shardloop %s\" \"User Commands\"\n.SH NAME\n", version);
    sl_print_roff(name);
    printf(" \\- %c", tolower((unsigned char)*summary));
    print_roff(summary + 1, length - 1);
    putchar('\n');
}

void sl_print_quoted(const char *text) {
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}
