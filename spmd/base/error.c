/* error.c - statuses and one-line messages. */
#include "spmd/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char *sl_error_line(char *text) {
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    }
    return text;
}

int sl_error_set(struct sl_error *error, int status, const char *format, ...) {
    if (!error) return status;
    char line[sizeof error->message]; /* an argument may be the old message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    error->status = status;
    strcpy(error->message, sl_error_line(line));
    return status;
}
