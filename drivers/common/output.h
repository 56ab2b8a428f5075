/* output.h - what a driver prints, on stdout or into the file that its user names: all of it, or nothing where the run
 * fails before the end. A regular file is replaced once the new one is whole. */
#ifndef SL_DRIVERS_COMMON_OUTPUT_H
#define SL_DRIVERS_COMMON_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "spmd/base/error.h"

struct sl_options; /* drivers/common/options.h */

/* Text that a stream collects in memory. */
struct sl_text {
    char *bytes; /* [size], and a zero behind them; NULL while there are none. Free them. */
    size_t size, capacity;
};

/* A stream into *TEXT, which stays where it is until the stream is closed; NULL without memory. That of open_memstream
 * may lose a character where it cannot grow, and not tell. */
FILE *sl_text_open(struct sl_text *text);

/* Whether all that was printed is there. STREAM is NULL, or closed by this. */
bool sl_text_close(FILE *stream);

struct sl_output {
    FILE *stream;       /* print here */
    const char *name;   /* for messages about it */
    const char *path;   /* NULL: stdout */
    const char *option; /* that names it; "--output" unless it is set */
    int columns;        /* of the terminal on which it is read; 0: that is none, shows no colours or should not */
    int width;          /* of the terminal, whether it shows colours or not; 0: there is none */
    struct sl_text text;
};

/* SL_FAILED without memory. */
int sl_output_open(struct sl_output *output, const char *path, struct sl_error *error);

/* Opens PATH, which OPTION names, for what is written as a stream: a file, a pipe or a device. APPENDS: after what it
 * holds already. SL_BAD_INPUT where it cannot be opened. */
int sl_output_file(const char *option, const char *path, bool appends, FILE **file, struct sl_error *error);

/* Writes what was printed to where it belongs if STATUS is SL_OK, and forgets it otherwise. Returns STATUS,
 * SL_BAD_INPUT for a file that cannot be opened, SL_FAILED where not all could be written. */
int sl_output_close(struct sl_output *output, int status, struct sl_error *error);

/* For drivers with the choice --format of which json is one, --json and --output: --json becomes that format. Without
 * both a file of --output that ends with .svg, .html, .csv or .json chooses its format. SL_BAD_INPUT where --format has
 * none of that name. Any other file, and other drivers' options, change nothing. */
int sl_output_format(const struct sl_options *options, struct sl_error *error);

#endif
