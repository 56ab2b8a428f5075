/* wrap.h - prints text in lines of 80 columns, for --help. */
#ifndef SL_DRIVERS_COMMAND_LINE_WRAP_H
#define SL_DRIVERS_COMMAND_LINE_WRAP_H

enum { SL_HELP_COLUMNS = 80 };

/* Prints TEXT to stdout from column AT on, its lines indented by INDENT and at most SL_HELP_COLUMNS wide. Returns the
 * column after it. */
int sl_print_wrapped(const char *text, int at, int indent);

#endif
