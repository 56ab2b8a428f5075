/* lines.h - lines that somebody types, or that come through a pipe. On a terminal they can be edited, and old ones come
 * back, where the build has an editor for that (libedit). */
#ifndef SL_DRIVERS_TEXT_LINES_H
#define SL_DRIVERS_TEXT_LINES_H

#include "spmd/base/error.h"

/* Bytes of a line at most. */
enum { SL_LONGEST_LINE = 1 << 20 };

enum sl_line {
    SL_LINE,         /* there is one */
    SL_LINE_LAST,    /* there are no more: the end of the file, or Ctrl-D */
    SL_LINE_GIVEN_UP /* by Ctrl-C */
};

/* What is done meanwhile. */
struct sl_line_watch {
    double seconds;           /* so often `meanwhile` is called while no byte comes */
    int (*meanwhile)(void *); /* other than SL_OK: reading ends with that status, whose error is set */
    bool (*gives_up)(void *); /* whether the line is given up; asked after signals, too */
    void *arg;
};

struct sl_lines; /* opaque */

/* Lines of stdin. PROMPT is shown before each where stdin and stdout are a terminal. Call it while there is one thread:
 * the editor reads characters as the locale has them, and sets it. SL_FAILED without memory. Free with
 * sl_lines_close. */
int sl_lines_open(struct sl_lines **lines, const char *prompt, struct sl_error *error);
void sl_lines_close(struct sl_lines *lines);

/* The next line, *COUNT bytes of *TEXT without its newline, until the next call; *WHAT says whether there is one.
 * SL_BAD_INPUT: it is too long; SL_FAILED: stdin cannot be read. */
int sl_lines_next(struct sl_lines *lines, const struct sl_line_watch *watch, enum sl_line *what, const char **text,
                  size_t *count, struct sl_error *error);

#endif
