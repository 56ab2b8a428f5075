/* error.c - statuses and one-line messages. */
#include "spmd/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int sl_error_set(struct sl_error *error, int status, const char *format, ...) {
    if (!error) return status;
    char line[sizeof error->message]; /* an argument may be the old message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* Users' text is quoted in messages: whatever it holds, the message stays one line. */
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    }
    error->status = status;
    memcpy(error->message, line, strlen(line) + 1);
    return status;
}
