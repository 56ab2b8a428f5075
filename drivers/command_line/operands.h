/* operands.h - the arguments of a command line that are no options. */
#ifndef SL_DRIVERS_COMMAND_LINE_OPERANDS_H
#define SL_DRIVERS_COMMAND_LINE_OPERANDS_H

#include "drivers/command_line/paths.h"

/* What a command line has beside options: files, any number of them. */
struct sl_operands {
    const char *name, *help; /* in --help, "RUN"; NULL: there are none */
    enum sl_path_use path;
    const char *(*path_of)(const char *word); /* where the path in an operand begins; NULL: it is one */
    int count;
    const char **word; /* they live until sl_options_free */
};

/* Takes WORD. SL_BAD_INPUT where there are no operands, or WORD is empty; SL_FAILED without memory. */
int sl_operands_take(struct sl_operands *operands, const char *word, struct sl_error *error);

#endif
