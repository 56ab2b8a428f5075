/* lines.h - reads lines from a terminal or a pipe. On a terminal they can be edited, with a history, if the build
 * has an editor (libedit). */
#ifndef SL_DRIVERS_TOOLS_TEXT_LINES_H
#define SL_DRIVERS_TOOLS_TEXT_LINES_H

#include "spmd/base/error.h"

/* Limit of a line's bytes. */
enum { SL_LONGEST_LINE = 1 << 20 };

enum sl_line {
    SL_LINE,         /* a line was read */
    SL_LINE_LAST,    /* no more lines: end of the file, or Ctrl-D */
    SL_LINE_GIVEN_UP /* the line was given up by Ctrl-C */
};

/* Callbacks while waiting for input. */
struct sl_line_watch {
    double seconds;           /* interval of calls to `meanwhile` while no byte arrives */
    int (*meanwhile)(void *); /* status other than SL_OK, with the error set: reading ends with it */
    bool (*gives_up)(void *); /* whether to give up the line; also called after signals */
    void *arg;
};

struct sl_lines; /* opaque */

/* Opens the lines of stdin. PROMPT is printed before each line if stdin and stdout are terminals. Call it while
 * there is only one thread: it sets the locale, by which the editor reads characters. SL_FAILED without memory. Free
 * with sl_lines_close. */
int sl_lines_open(struct sl_lines **lines, const char *prompt, struct sl_error *error);
void sl_lines_close(struct sl_lines *lines);

/* Reads the next line: *COUNT bytes at *TEXT without the newline, valid until the next call; *WHAT says if there is
 * one. SL_BAD_INPUT: the line is too long; SL_FAILED: stdin cannot be read. */
int sl_lines_next(struct sl_lines *lines, const struct sl_line_watch *watch, enum sl_line *what, const char **text,
                  size_t *count, struct sl_error *error);

#endif
