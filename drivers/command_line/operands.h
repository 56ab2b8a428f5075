/* operands.h - arguments of a command line other than options. */
#ifndef SL_DRIVERS_COMMAND_LINE_OPERANDS_H
#define SL_DRIVERS_COMMAND_LINE_OPERANDS_H

#include "drivers/command_line/paths.h"

/* Operands of a command line: any number of files. */
struct sl_operands {
    const char *name, *help; /* in --help, "RUN"; NULL: there are none */
    enum sl_path_use path;
    const char *(*path_of)(const char *word); /* returns the start of the path in an operand; NULL: the operand is a
                                               * path */
    int count;
    const char **word; /* valid until sl_options_free */
};

/* Adds WORD. Returns SL_BAD_INPUT if the program takes no operands or WORD is empty, SL_FAILED without memory. */
int sl_operands_take(struct sl_operands *operands, const char *word, struct sl_error *error);

#endif
