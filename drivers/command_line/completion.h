/* completion.h - what bash, zsh and fish complete: a line, or lines, of a program, which drivers/manual/make.sh puts
 * between the functions that read them. */
#ifndef SL_DRIVERS_COMMAND_LINE_COMPLETION_H
#define SL_DRIVERS_COMMAND_LINE_COMPLETION_H

#include <stdbool.h>

#include "drivers/command_line/help_format.h"

/* An option as shells know it. */
struct sl_completed {
    const char *name, *help;
    bool negated;        /* there is --no-NAME, too */
    const char *value;   /* what --help calls its value; NULL: it takes none */
    const char *choices; /* all that it takes, "a|b"; NULL: anything */
    bool file, folder;   /* it names one */
};

/* PROGRAM is "transformer train", say; between the two come its options. */
void sl_completion_begin(const char *program, enum sl_help_format format);
void sl_completion_option(const char *program, const struct sl_completed *option, enum sl_help_format format);
void sl_completion_end(enum sl_help_format format);

/* Of a driver with commands, between the two: each of them. */
void sl_completion_begin_commands(const char *driver, enum sl_help_format format);
void sl_completion_command(const char *driver, const char *name, const char *summary, enum sl_help_format format);
void sl_completion_end_commands(enum sl_help_format format);

#endif
