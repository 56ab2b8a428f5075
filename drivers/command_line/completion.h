/* completion.h - prints completions for bash, zsh and fish: one or more lines per program. drivers/manual/make.sh
 * puts them between the shell functions that read them. */
#ifndef SL_DRIVERS_COMMAND_LINE_COMPLETION_H
#define SL_DRIVERS_COMMAND_LINE_COMPLETION_H

#include <stdbool.h>

#include "drivers/command_line/help_format.h"

/* An option in a shell's completion. */
struct sl_completed {
    const char *name, *help;
    bool negated;        /* --no-NAME exists, too */
    const char *value;   /* name of its value in --help; NULL: it takes none */
    const char *choices; /* all allowed values, "a|b"; NULL: any value */
    bool file, folder;   /* its value is a file, a folder */
};

/* PROGRAM is for example "transformer train"; call sl_completion_option for each option between begin and end. */
void sl_completion_begin(const char *program, enum sl_help_format format);
void sl_completion_option(const char *program, const struct sl_completed *option, enum sl_help_format format);
void sl_completion_end(enum sl_help_format format);

/* A driver with commands: call sl_completion_command for each command between begin and end. */
void sl_completion_begin_commands(const char *driver, enum sl_help_format format);
void sl_completion_command(const char *driver, const char *name, const char *summary, enum sl_help_format format);
void sl_completion_end_commands(enum sl_help_format format);

#endif
