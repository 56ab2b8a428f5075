/* output.h - a driver's output, on stdout or into a file chosen by the user: complete, or nothing if the run fails.
 * A regular file is replaced after the new one is complete. */
#ifndef SL_DRIVERS_COMMON_OUTPUT_H
#define SL_DRIVERS_COMMON_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "spmd/base/error.h"

struct sl_options; /* drivers/common/options.h */

/* Text in memory, written through a stream. */
struct sl_text {
    char *bytes; /* [size] and a terminating zero; NULL while empty. The caller frees it. */
    size_t size, capacity;
};

/* Opens a stream that writes to *TEXT, which must not move until the stream is closed; NULL without memory. (A
 * stream of open_memstream may lose a character without an error if it cannot grow.) */
FILE *sl_text_open(struct sl_text *text);

/* Closes STREAM, which may be NULL; returns whether the text is complete. */
bool sl_text_close(FILE *stream);

struct sl_output {
    FILE *stream;       /* drivers print here */
    const char *name;   /* for messages about it */
    const char *path;   /* NULL: stdout */
    const char *option; /* option that names the path; "--output" unless set */
    int columns;        /* of the terminal that shows it; 0: not a terminal, or no colours wanted */
    int width;          /* of the terminal, with or without colours; 0: none */
    struct sl_text text;
};

/* SL_FAILED without memory. */
int sl_output_open(struct sl_output *output, const char *path, struct sl_error *error);

/* Opens PATH, given by OPTION, for writing as a stream: a file, a pipe or a device. APPENDS: after its present
 * contents. Returns SL_BAD_INPUT if it cannot be opened. */
int sl_output_file(const char *option, const char *path, bool appends, FILE **file, struct sl_error *error);

/* Writes the printed text to its destination if STATUS is SL_OK; otherwise discards it. Returns STATUS, SL_BAD_INPUT
 * if the file cannot be opened, SL_FAILED if not all could be written. */
int sl_output_close(struct sl_output *output, int status, struct sl_error *error);

/* For drivers with --format (including json), --json and --output: --json selects the format json. If neither is
 * given and the name of --output ends with .svg, .html, .csv or .json, this ending selects the format. Returns
 * SL_BAD_INPUT if --format has no such choice, or contradicts --json. Other files, and other drivers' options, change
 * nothing. */
int sl_output_format(const struct sl_options *options, struct sl_error *error);

#endif
