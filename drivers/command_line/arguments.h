/* arguments.h - a command line with its @FILE arguments replaced by the words in the files.
 *
 * Words are separated by white space; ' and " quote; a # at the start of a word begins a comment that ends with the
 * line. Files may name files, relative to the working directory. */
#ifndef SL_DRIVERS_COMMAND_LINE_ARGUMENTS_H
#define SL_DRIVERS_COMMAND_LINE_ARGUMENTS_H

#include "spmd/base/error.h"

/* Owned copies, NULL after the last. Zero-initialize. */
struct sl_arguments {
    int count;
    char **word;
    int files, capacity;
    char **file; /* paths of the @FILEs read so far */
};

int sl_arguments_expand(struct sl_arguments *arguments, int argc, char **argv, struct sl_error *error);
void sl_arguments_free(struct sl_arguments *arguments);

/* Prefix of a driver's name in its messages: "shardloop-" if installed, "shardloop " if started by the command
 * shardloop, "" in a build folder. */
const char *sl_program_prefix(void);

#endif
