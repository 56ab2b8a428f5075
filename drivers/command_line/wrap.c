/* wrap.c - prints text between two columns. */
#include "drivers/command_line/wrap.h"

#include <stdio.h>
#include <string.h>

int sl_print_wrapped(const char *text, int at, int indent) {
    for (const char *word = text; *word;) {
        const int length = (int)strcspn(word, " ");
        if (at > indent && at + 1 + length > SL_HELP_COLUMNS) {
            putchar('\n');
            at = 0;
        }
        if (at < indent) {
            at += printf("%*s", indent - at, "");
        } else if (at > indent) {
            at += printf(" ");
        }
        at += printf("%.*s", length, word);
        word += length + strspn(word + length, " ");
    }
    return at;
}
