/* commands.h - drivers whose first argument says what to do: "transformer train". */
#ifndef SL_DRIVERS_COMMON_COMMANDS_H
#define SL_DRIVERS_COMMON_COMMANDS_H

#include "spmd/base/base.h"

struct sl_command {
    const char *name;    /* "train"; NULL ends a table */
    const char *program; /* as its messages begin: "transformer train" */
    const char *summary; /* for --help */
    /* Returns the exit status. PROGRAM is the command's, or the driver's name alone where only --version is asked for.
     */
    int (*run)(const struct sl_command *command, const char *program, int argc, char **argv);
};

/* What main of DRIVER does: runs the command of the table that ARGV names; answers --help and --version without one;
 * otherwise one line on stderr says which there are, and the exit status is 2. */
int sl_commands_main(const char *driver, const struct sl_command *table, int argc, char **argv);

/* Prints its --help in the form that is asked for (drivers/command_line/help_format.h), without that of its commands;
 * false where that is the usual text. */
bool sl_manual_print_commands(const char *driver, const struct sl_command *table);

#endif
