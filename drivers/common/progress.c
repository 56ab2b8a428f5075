/* progress.c - a progress line on stderr. */
#include "drivers/common/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "spmd/spmd.h"

enum { BAR = 10, LINE = 256 };

void sl_progress_begin(struct sl_progress *progress, const char *unit, const char *rows, int64_t total, double every) {
    const char *terminal = getenv("TERM");
    *progress = (struct sl_progress){.unit = unit, .rows = rows, .total = total, .every = every, .began = sl_now()};
    progress->drew = progress->began;
    progress->shown = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

/* Returns the terminal's columns, less one: a full last column may wrap. */
static int terminal_width(void) {
    struct winsize size;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    const int width = known ? size.ws_col - 1 : 79;
    return width < LINE ? width : LINE - 1;
}

/* Writes SECONDS as 59s, 9m59s or 99h59m; returns TEXT. */
static char *describe_seconds(double seconds, char *text, size_t size) {
    const long s = seconds < 1e7 ? (long)(seconds + 0.5) : 9999999;
    if (s < 60) {
        snprintf(text, size, "%lds", s);
    } else if (s < 3600) {
        snprintf(text, size, "%ldm%02lds", s / 60, s % 60);
    } else {
        snprintf(text, size, "%ldh%02ldm", s / 3600, s / 60 % 60);
    }
    return text;
}

/* Prints a line of a log; all lines begin alike. */
static void log_line(const struct sl_progress *progress, int64_t done, const char *remaining, double rate) {
    fprintf(stderr, "%s: %s %lld of %lld, %.0f %s/s, %s left\n", program_invocation_short_name, progress->unit,
            (long long)(progress->before + done), (long long)(progress->before + progress->total), rate, progress->rows,
            remaining);
}

void sl_progress_update(struct sl_progress *progress, int64_t done, double rows, double seconds, double loss,
                        double accuracy) {
    const double now = sl_now();
    if (progress->shown ? now - progress->drew < 0.1 && done < progress->total
                        : !progress->every || now - progress->drew < progress->every || done == progress->total)
        return;
    progress->drew = now;
    const double elapsed = now - progress->began;
    const double part = done < progress->total ? (double)done / (double)progress->total : 1;
    const int filled = (int)(part * BAR);
    char bar[BAR + 1] = "", remaining[24], learned[64] = "", line[LINE];
    memset(bar, '#', (size_t)filled);
    memset(bar + filled, '.', (size_t)(BAR - filled));
    describe_seconds(part > 0 ? elapsed * (1 - part) / part : 0, remaining, sizeof remaining);
    if (!progress->shown) {
        log_line(progress, done, remaining, seconds > 0 ? rows / seconds : 0);
        return;
    }
    /* The least important numbers come last: a narrow terminal cuts them off. */
    if (!isnan(loss)) snprintf(learned, sizeof learned, "  loss %.6f  accuracy %.4f", loss, accuracy);
    snprintf(line, sizeof line, "%s %lld/%lld [%s] ETA %s%s  %.0f %s/s", progress->unit, (long long)done,
             (long long)progress->total, bar, remaining, learned, seconds > 0 ? rows / seconds : 0, progress->rows);
    fprintf(stderr, "\r%.*s\033[K", terminal_width(), line);
    progress->drawn = true;
}

void sl_progress_clear(struct sl_progress *progress) {
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = false;
}
