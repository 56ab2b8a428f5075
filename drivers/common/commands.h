/* commands.h - drivers with commands as their first argument: "transformer train". */
#ifndef SL_DRIVERS_COMMON_COMMANDS_H
#define SL_DRIVERS_COMMON_COMMANDS_H

#include "spmd/base/base.h"

struct sl_command {
    const char *name;    /* "train"; NULL ends a table */
    const char *program; /* prefix of its messages: "transformer train" */
    const char *summary; /* for --help */
    /* Runs the command; returns the exit status. PROGRAM is the command's, or only the driver's name for --version. */
    int (*run)(const struct sl_command *command, const char *program, int argc, char **argv);
};

/* The main function of DRIVER: runs the command of TABLE named in ARGV, and answers --help and --version without a
 * command. Otherwise prints the names of the commands on stderr; the exit status is 2. */
int sl_commands_main(const char *driver, const struct sl_command *table, int argc, char **argv);

/* Prints the driver's --help in the selected form (drivers/command_line/help_format.h), without the help of its
 * commands. Returns false for the usual text form. */
bool sl_manual_print_commands(const char *driver, const struct sl_command *table);

#endif
