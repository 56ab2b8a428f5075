/* line_editor_missing.c - for builds without libedit: lines of a terminal are read without editing. */
#include <stddef.h>

#include "drivers/tools/text/lines_internal.h"

struct sl_line_editor *sl_line_editor_open(struct sl_lines *lines) {
    (void)lines;
    return NULL;
}

void sl_line_editor_close(struct sl_line_editor *editor) { (void)editor; }

const char *sl_line_editor_next(struct sl_line_editor *editor, int *count) {
    (void)editor;
    *count = 0;
    return NULL;
}
