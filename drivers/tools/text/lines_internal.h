/* lines_internal.h - shared by the line reader (lines.c) and its editor: line_editor.c, or line_editor_missing.c in
 * builds without libedit. */
#ifndef SL_DRIVERS_TOOLS_TEXT_LINES_INTERNAL_H
#define SL_DRIVERS_TOOLS_TEXT_LINES_INTERNAL_H

#include "drivers/tools/text/lines.h"

struct sl_line_editor;

enum { SL_BYTE_LAST = -1, SL_BYTE_NONE = -2 };

/* Reader of stdin's lines. */
struct sl_lines {
    /* Waits for the next byte and returns it; SL_BYTE_LAST: end of input; SL_BYTE_NONE: the line is given up, or
     * reading has ended with a status. */
    int (*next_byte)(struct sl_lines *lines);
    const char *prompt;            /* "": not printed */
    struct sl_line_editor *editor; /* NULL: lines are read without editing */
    const struct sl_line_watch *watch;
    int status; /* other than SL_OK: reason for the end of reading */
    int reason; /* errno of a failed read of stdin */
    char *text;
    int count, room;
};

/* Opens an editor for the terminal; NULL: there is none. */
struct sl_line_editor *sl_line_editor_open(struct sl_lines *lines);
void sl_line_editor_close(struct sl_line_editor *editor);
/* Returns the next line, with its newline; NULL: none, with *COUNT at most 0 at the end of input. */
const char *sl_line_editor_next(struct sl_line_editor *editor, int *count);

#endif
