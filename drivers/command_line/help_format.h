/* help_format.h - other forms of --help: a manual page, and shell completions.
 *
 * The environment variable SHARDLOOP_HELP selects the form: man, bash, zsh, fish, or commands (the names of a
 * driver's commands). drivers/manual/make.sh sets it when the programs are installed. */
#ifndef SL_DRIVERS_COMMAND_LINE_HELP_FORMAT_H
#define SL_DRIVERS_COMMAND_LINE_HELP_FORMAT_H

enum sl_help_format { SL_HELP_TEXT, SL_HELP_MAN, SL_HELP_BASH, SL_HELP_ZSH, SL_HELP_FISH, SL_HELP_COMMANDS };

/* Returns the form named by the environment variable SHARDLOOP_HELP; SL_HELP_TEXT if it names none. */
enum sl_help_format sl_help_format(void);

/* Prints the head of the manual page of program NAME, and the page's NAME section with the first sentence of
 * SUMMARY. */
void sl_roff_begin(const char *name, const char *summary, const char *version);
/* Prints TEXT in roff syntax, without a newline at its end. */
void sl_print_roff(const char *text);
/* Prints TEXT in single quotes, in the syntax of bash, zsh and fish. */
void sl_print_quoted(const char *text);

#endif
