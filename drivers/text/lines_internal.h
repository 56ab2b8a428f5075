/* lines_internal.h - what the reader of lines (lines.c) and its editor share: line_editor.c, or line_editor_missing.c
 * in builds without libedit. */
#ifndef SL_DRIVERS_TEXT_LINES_INTERNAL_H
#define SL_DRIVERS_TEXT_LINES_INTERNAL_H

#include "drivers/text/lines.h"

struct sl_line_editor;

/* Of stdin. */
struct sl_lines {
    const char *prompt;            /* "": nobody is to see one */
    struct sl_line_editor *editor; /* NULL: lines are read as they come */
    const struct sl_line_watch *watch;
    int status; /* other than SL_OK: why reading ended */
    int reason; /* errno, where stdin could not be read */
    char *text;
    int count, room;
};

enum { SL_BYTE_LAST = -1, SL_BYTE_NONE = -2 };
/* The next byte, as soon as there is one; SL_BYTE_LAST: there are no more; SL_BYTE_NONE: the line is given up, or
 * reading has ended with a status. */
int sl_lines_byte(struct sl_lines *lines);

/* An editor for the terminal; NULL: there is none. */
struct sl_line_editor *sl_line_editor_open(struct sl_lines *lines);
void sl_line_editor_close(struct sl_line_editor *editor);
/* The next line, with its newline; NULL: none, and *COUNT is 0 where there are no more, or less. */
const char *sl_line_editor_next(struct sl_line_editor *editor, int *count);

#endif
