/* lines.c - reads stdin byte by byte, and waits for each byte. */
#include "drivers/tools/text/lines_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmd/base/memory.h"

/* ---- bytes ---- */

static bool given_up(const struct sl_lines *l) { return l->watch->gives_up && l->watch->gives_up(l->watch->arg); }

/* Waits until there is a byte to read, or the end; returns whether one came. */
static bool wait_for_byte(struct sl_lines *l) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    const double seconds = l->watch->seconds;
    while (l->status == SL_OK && !given_up(l)) {
        const int ready = poll(&in, 1, seconds < 0.001 ? 1 : (int)(1e3 * seconds));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) l->status = SL_FAILED, l->reason = errno;
        if (ready == 0 && l->watch->meanwhile) l->status = l->watch->meanwhile(l->watch->arg);
    }
    return false;
}

static int next_byte(struct sl_lines *l) {
    unsigned char byte;
    while (wait_for_byte(l)) {
        const ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got > 0) return byte;
        if (got == 0) return SL_BYTE_LAST;
        if (errno != EINTR && errno != EAGAIN) l->status = SL_FAILED, l->reason = errno;
    }
    return SL_BYTE_NONE;
}

/* ---- lines ---- */

int sl_lines_open(struct sl_lines **lines, const char *prompt, struct sl_error *error) {
    struct sl_lines *l = *lines = calloc(1, sizeof *l);
    if (!l) return sl_error_set(error, SL_FAILED, "no memory for lines");
    const bool shown = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    l->next_byte = next_byte;
    l->prompt = shown ? prompt : "";
    if (shown) l->editor = sl_line_editor_open(l);
    return SL_OK;
}

void sl_lines_close(struct sl_lines *l) {
    if (!l) return;
    sl_line_editor_close(l->editor);
    free(l->text);
    free(l);
}

static bool add(struct sl_lines *l, char byte) {
    char *text = sl_grow(l->text, l->count, &l->room, 256, 1);
    if (!text) return false;
    l->text = text;
    l->text[l->count++] = byte;
    return true;
}

static int too_long(struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "stdin: a line of more than %d bytes", SL_LONGEST_LINE);
}

/* Reads a line without an editor; the last line may lack its newline. */
static int read_plain(struct sl_lines *l, enum sl_line *what, struct sl_error *error) {
    int byte;
    l->count = 0;
    fputs(l->prompt, stdout);
    fflush(stdout);
    while ((byte = next_byte(l)) >= 0 && byte != '\n') {
        if (l->count == SL_LONGEST_LINE) return too_long(error);
        if (!add(l, (char)byte)) return sl_error_set(error, SL_FAILED, "no memory for a line");
    }
    *what = byte == SL_BYTE_NONE ? SL_LINE_GIVEN_UP : byte == SL_BYTE_LAST && !l->count ? SL_LINE_LAST : SL_LINE;
    return SL_OK;
}

static int read_edited(struct sl_lines *l, enum sl_line *what, const char **text, size_t *count,
                       struct sl_error *error) {
    int bytes;
    *text = sl_line_editor_next(l->editor, &bytes);
    *what = *text && bytes > 0 ? SL_LINE : bytes < 0 ? SL_LINE_GIVEN_UP : SL_LINE_LAST;
    *count = *what == SL_LINE ? (size_t)bytes : 0;
    if (*count > SL_LONGEST_LINE) return too_long(error);
    if (*count && (*text)[*count - 1] == '\n') --*count;
    return SL_OK;
}

int sl_lines_next(struct sl_lines *l, const struct sl_line_watch *watch, enum sl_line *what, const char **text,
                  size_t *count, struct sl_error *error) {
    l->watch = watch;
    l->status = SL_OK;
    l->reason = 0;
    if (l->editor) {
        SL_TRY(read_edited(l, what, text, count, error));
    } else {
        SL_TRY(read_plain(l, what, error));
        *text = l->text;
        *count = l->count;
    }
    if (l->reason) return sl_error_set(error, SL_FAILED, "stdin: %s", strerror(l->reason));
    if (*l->prompt && *what != SL_LINE) putchar('\n');
    return l->status;
}
